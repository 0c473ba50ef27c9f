import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.Properties;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichFlatMapFunction;
import org.apache.flink.api.common.serialization.AbstractDeserializationSchema;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.KafkaSourceBuilder;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.producer.ProducerRecord;

/** ShuffleBench on Flink, with the functions of functions.py: `Shuffle PROPERTIES`; with `bench.bounded` ends with its input. */
public final class Shuffle {
    private Shuffle() {}

    public static void main(String[] args) throws Exception {
        Properties config = Watch.read(Path.of(args[0]));
        StreamExecutionEnvironment flink = StreamExecutionEnvironment.getExecutionEnvironment(Watch.settings(config));
        String servers = config.getProperty("bench.bootstrap");
        KafkaSourceBuilder<byte[]> source = KafkaSource.<byte[]>builder()
            .setBootstrapServers(servers)
            .setTopics(config.getProperty("bench.input"))
            .setGroupId(config.getProperty("bench.application"))
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setValueOnlyDeserializer(new Bytes());
        if (Boolean.parseBoolean(config.getProperty("bench.bounded"))) {
            source.setBounded(OffsetsInitializer.latest());
        }
        KafkaSink<Tuple2<String, byte[]>> sink = KafkaSink.<Tuple2<String, byte[]>>builder()
            .setBootstrapServers(servers)
            .setProperty("transaction.timeout.ms", "900000")
            .setTransactionalIdPrefix(config.getProperty("bench.application"))
            .setDeliveryGuarantee(DeliveryGuarantee.valueOf(config.getProperty("bench.guarantee").toUpperCase().replace('-', '_')))
            .setRecordSerializer(new Results(config.getProperty("bench.output")))
            .build();
        flink.fromSource(source.build(), WatermarkStrategy.noWatermarks(), "input")
            .flatMap(new Match(config))
            .keyBy(found -> found.f0)
            .process(new Consumer(config))
            .sinkTo(sink);
        Watch watch = new Watch(config);
        flink.execute();
        watch.end();
    }

    private static final class Bytes extends AbstractDeserializationSchema<byte[]> {
        @Override
        public byte[] deserialize(byte[] data) {
            return data;
        }
    }

    private record Results(String topic) implements KafkaRecordSerializationSchema<Tuple2<String, byte[]>> {
        @Override
        public ProducerRecord<byte[], byte[]> serialize(Tuple2<String, byte[]> found, KafkaSinkContext context, Long time) {
            return new ProducerRecord<>(topic, null, time, found.f0.getBytes(StandardCharsets.UTF_8), found.f1);
        }
    }

    /** A record for each consumer whose rule matches. */
    private static final class Match extends RichFlatMapFunction<byte[], Tuple2<String, byte[]>> {
        private final Properties config;
        private transient Index index;

        Match(Properties config) {
            this.config = config;
        }

        @Override
        public void open(OpenContext context) {
            index = new Index(
                Integer.parseInt(config.getProperty("bench.rules")),
                Double.parseDouble(config.getProperty("bench.selectivity")),
                Double.parseDouble(config.getProperty("bench.exponent"))
            );
        }

        @Override
        public void flatMap(byte[] data, Collector<Tuple2<String, byte[]>> output) {
            for (String consumer : index.consumers(data)) {
                output.collect(Tuple2.of(consumer, data));
            }
        }
    }

    /** A consumer's state, and its result with every n-th record. */
    private static final class Consumer extends KeyedProcessFunction<String, Tuple2<String, byte[]>, Tuple2<String, byte[]>> {
        private final int rate;
        private final int size;
        private final boolean random;
        private transient ValueState<byte[]> states;

        Consumer(Properties config) {
            rate = Integer.parseInt(config.getProperty("bench.rate"));
            size = Integer.parseInt(config.getProperty("bench.size"));
            random = Boolean.parseBoolean(config.getProperty("bench.random_start"));
        }

        @Override
        public void open(OpenContext context) {
            states = getRuntimeContext().getState(new ValueStateDescriptor<>("consumers", byte[].class));
        }

        @Override
        public void processElement(Tuple2<String, byte[]> record, Context context, Collector<Tuple2<String, byte[]>> output)
            throws Exception {
            byte[] found = states.value();
            // A checkpoint may be reading a state on the heap: it is not to be changed in place.
            byte[] state = found == null ? new byte[size] : found.clone();
            long count = Step.take(state, found == null && random ? rate : 0, record.f1, context.timestamp());
            if (count < rate) {
                states.update(state);
            } else {
                states.update(new byte[size]);
                output.collect(Tuple2.of(record.f0, state));
            }
        }
    }
}

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.function.Function;
import org.apache.kafka.clients.consumer.internals.StreamsGroupHeartbeatRequestManager;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.message.StreamsGroupHeartbeatRequestData;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.processor.TaskId;
import org.apache.kafka.streams.processor.internals.ChangelogTopics;
import org.apache.kafka.streams.processor.internals.InternalTopicConfig;
import org.apache.kafka.streams.processor.internals.InternalTopicManager;
import org.apache.kafka.streams.processor.internals.InternalTopologyBuilder;
import org.apache.kafka.streams.processor.internals.PartitionGrouper;
import org.apache.kafka.streams.processor.internals.RepartitionTopics;
import org.apache.kafka.streams.processor.internals.StreamThread;
import org.apache.kafka.streams.processor.internals.TopologyMetadata;
import org.apache.kafka.streams.processor.internals.TopologyMetadata.Subtopology;
import org.apache.kafka.streams.processor.internals.assignment.CopartitionedTopicsEnforcer;

/** The internal topics and tasks that the leader of a group would make for input topics of given sizes. */
final class Layouts {
    private final InternalTopologyBuilder builder;
    private final StreamsConfig config;
    private final Map<String, InternalTopicConfig> made = new TreeMap<>();

    private Layouts(Topology topology, Properties properties) {
        config = new StreamsConfig(properties);
        builder = (InternalTopologyBuilder) hidden(() -> {
            var field = Topology.class.getDeclaredField("internalTopologyBuilder");
            field.setAccessible(true);
            return field.get(topology);
        });
    }

    /** JSON: `topics`, by name the count and the configuration; `tasks`; or `error`, if Kafka Streams refuses the sizes. */
    static String of(Topology topology, Properties properties, JsonNode counts) {
        Layouts layouts = new Layouts(topology, properties);
        Map<String, Object> answer = new TreeMap<>();
        try {
            answer.put("tasks", layouts.tasks(counts));
            answer.put("topics", layouts.topics());
            answer.put("group", layouts.group());
            answer.put("description", layouts.description());
        } catch (RuntimeException e) {
            answer.put("error", e.toString());
        }
        return Data.text(answer);
    }

    private List<String> tasks(JsonNode counts) {
        Map<TopicPartition, PartitionInfo> partitions = new HashMap<>();
        counts.properties().forEach(entry -> add(partitions, entry.getKey(), entry.getValue().asInt()));
        Cluster existing = cluster(partitions.values());
        TopologyMetadata metadata = new TopologyMetadata(builder, config);
        metadata.buildAndRewriteTopology();
        hidden(() -> {
            var subscribe = InternalTopologyBuilder.class.getDeclaredMethod("addSubscribedTopicsFromMetadata", Set.class, String.class);
            subscribe.setAccessible(true);
            return subscribe.invoke(builder, existing.topics(), "");
        });
        InternalTopicManager manager = new Recorder(config);
        RepartitionTopics repartitions = new RepartitionTopics(metadata, manager, new CopartitionedTopicsEnforcer(""), existing, "");
        repartitions.setup();
        if (!repartitions.missingSourceTopics().isEmpty()) {
            throw new IllegalStateException("Missing source topics " + repartitions.missingSourceTopics());
        }
        partitions.putAll(repartitions.topicPartitionsInfo());
        Map<Subtopology, Set<String>> sources = new HashMap<>();
        builder.subtopologyToTopicsInfo().forEach((each, info) -> sources.put(each, info.sourceTopics));
        Set<TaskId> tasks = new PartitionGrouper().partitionGroups(sources, cluster(partitions.values())).keySet();
        Map<Subtopology, Set<TaskId>> grouped = new HashMap<>();
        tasks.forEach(task -> grouped.computeIfAbsent(new Subtopology(task.subtopology(), null), each -> new HashSet<>()).add(task));
        new ChangelogTopics(manager, builder.subtopologyToTopicsInfo(), grouped, "").setup();
        return tasks.stream().sorted().map(TaskId::toString).toList();
    }

    private Map<String, Object> topics() {
        Map<String, String> defaults = new HashMap<>();
        config.originalsWithPrefix(StreamsConfig.TOPIC_PREFIX).forEach((name, value) -> defaults.put(name, value.toString()));
        long additional = config.getLong(StreamsConfig.WINDOW_STORE_CHANGE_LOG_ADDITIONAL_RETENTION_MS_CONFIG);
        Map<String, Object> topics = new TreeMap<>();
        made.forEach((name, topic) ->
            topics.put(name, List.of(topic.numberOfPartitions().orElse(-1), new TreeMap<>(topic.properties(defaults, additional)))));
        return topics;
    }

    /** The bytes of a heartbeat with what a streams group takes for its topology; empty where Kafka Streams can't be in such a group. */
    private String group() {
        try {
            return heartbeat();
        } catch (IllegalStateException e) {
            return "";
        }
    }

    private String heartbeat() {
        if ((boolean) hidden(() -> invoke(builder, InternalTopologyBuilder.class, "usesPatternSubscription"))) {
            return "";
        }
        Object subs = hidden(() -> invoke(null, StreamThread.class, "initBrokerTopology", config, builder));
        Class<?> state = (Class<?>) hidden(() -> Class.forName(StreamsGroupHeartbeatRequestManager.class.getName() + "$HeartbeatState"));
        StreamsGroupHeartbeatRequestData.Topology message = new StreamsGroupHeartbeatRequestData.Topology();
        message.setSubtopologies(subtopologies(hidden(() -> invoke(null, state, "fromStreamsToHeartbeatRequest", subs))));
        return HexFormat.of().formatHex(MessageUtil.toVersionPrefixedBytes((short) 0, new StreamsGroupHeartbeatRequestData().setTopology(message)));
    }

    /** The bytes of a request with the topology's description and nothing else; empty before Kafka Streams 4.4, which does not send any. */
    private String description() {
        Class<?> converter;
        Class<?> update;
        try {
            converter = Class.forName("org.apache.kafka.streams.processor.internals.TopologyDescriptionConverter");
            update = Class.forName("org.apache.kafka.common.message.StreamsGroupTopologyDescriptionUpdateRequestData");
        } catch (ClassNotFoundException e) {
            return "";
        }
        Function<String, String> names = topic -> topic == null
            ? null
            : (String) hidden(() -> invoke(builder, InternalTopologyBuilder.class, "maybeDecorateInternalTopic", topic));
        Object description = hidden(() -> invoke(null, converter, "toWire", builder.describe(), names));
        Object request = hidden(() -> invoke(update.getConstructor().newInstance(), update, "setTopologyDescription", description));
        return HexFormat.of().formatHex(MessageUtil.toVersionPrefixedBytes((short) 0, (Message) request));
    }

    @SuppressWarnings("unchecked")
    private static List<StreamsGroupHeartbeatRequestData.Subtopology> subtopologies(Object list) {
        return (List<StreamsGroupHeartbeatRequestData.Subtopology>) list;
    }

    /** Calls the method of this name that takes such arguments, whoever may see it. */
    private static Object invoke(Object target, Class<?> type, String name, Object... arguments) throws ReflectiveOperationException {
        for (var method : type.getDeclaredMethods()) {
            Class<?>[] types = method.getParameterTypes();
            boolean fits = method.getName().equals(name) && types.length == arguments.length;
            for (int i = 0; fits && i < types.length; i++) {
                fits = types[i].isInstance(arguments[i]);
            }
            if (fits) {
                method.setAccessible(true);
                return method.invoke(target, arguments);
            }
        }
        throw new NoSuchMethodException(name);
    }

    /** What only reflection reaches. */
    private static Object hidden(Callable<Object> look) {
        try {
            return look.call();
        } catch (Exception e) {
            throw new IllegalStateException(e);
        }
    }

    private static void add(Map<TopicPartition, PartitionInfo> partitions, String topic, int count) {
        for (int number = 0; number < count; number++) {
            partitions.put(new TopicPartition(topic, number), new PartitionInfo(topic, number, null, new Node[0], new Node[0]));
        }
    }

    private static Cluster cluster(Collection<PartitionInfo> partitions) {
        return new Cluster("", List.of(), new ArrayList<>(partitions), Set.of(), Set.of());
    }

    /** Keeps what it is asked to make. */
    private final class Recorder extends InternalTopicManager {
        private Recorder(StreamsConfig config) {
            super(Time.SYSTEM, null, config);
        }

        @Override
        public Set<String> makeReady(Map<String, InternalTopicConfig> topics) {
            made.putAll(topics);
            return topics.keySet();
        }
    }
}

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.table.api.TableResult;
import org.apache.flink.table.functions.FunctionContext;
import org.apache.flink.table.functions.ScalarFunction;
import org.apache.flink.table.functions.TableFunction;

/**
 * Statements of Flink SQL in a local cluster: `Script FILE... PROPERTIES`; ends when the last one's job has ended.
 *
 * `${name}` in a file is the property `bench.name`.
 */
public final class Script {
    private static final Pattern NAME = Pattern.compile("\\$\\{(\\w+)}");

    private Script() {}

    public static void main(String[] args) throws Exception {
        Properties config = Watch.read(Path.of(args[args.length - 1]));
        TableEnvironment tables = TableEnvironment.create(
            EnvironmentSettings.newInstance().inStreamingMode().withConfiguration(Watch.settings(config)).build()
        );
        tables.createTemporarySystemFunction("COUNT_CHAR", CountChar.class);
        tables.createTemporarySystemFunction("SIDE_INPUT", SideInput.class);
        Watch watch = new Watch(config);
        TableResult result = null;
        for (String file : Arrays.copyOf(args, args.length - 1)) {
            String text = NAME.matcher(Files.readString(Path.of(file)))
                .replaceAll(name -> Matcher.quoteReplacement(config.getProperty("bench." + name.group(1))));
            for (String statement : text.strip().split(";\n*")) {
                result = tables.executeSql(statement);
            }
        }
        result.await();
        watch.end();
    }

    /** How often a text has a character. */
    public static final class CountChar extends ScalarFunction {
        public Long eval(String text, String character) {
            return text.chars().filter(each -> each == character.charAt(0)).count();
        }
    }

    /** The side input of query 13: a row for each number below 10,000. */
    public static final class SideInput extends TableFunction<String> {
        private Map<Long, String> rows;

        @Override
        public void open(FunctionContext context) {
            rows = new HashMap<>();
            for (long number = 0; number < 10_000; number++) {
                rows.put(number, Long.toString(number));
            }
        }

        public void eval(Long key) {
            String row = rows.get(key);
            if (row != null) {
                collect(row);
            }
        }
    }
}

import java.io.BufferedReader;
import java.io.InputStreamReader;
import org.apache.kafka.tools.StreamsResetter;

/** Runs Kafka's own tool once for each line of tab-separated arguments, and says how it ended. */
public class Resets {
    public static void main(String[] none) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            int code = new StreamsResetter().execute(line.split("\t"));
            System.out.println("EXIT CODE " + code);
            System.out.flush();
        }
    }
}

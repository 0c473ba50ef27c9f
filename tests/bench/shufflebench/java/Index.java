import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.TreeMap;
import java.util.TreeSet;

/** The rules of each part of the ring between two neighbouring bounds of ranges. */
final class Index {
    private static final double RING = 9.223372036854775808E18;
    private static final long SEED = 0x53485546464C4531L;
    private static final long STEP = 0x9E3779B97F4A7C15L;
    private final long[] bounds;
    private final String[][] names;

    Index(int rules, double selectivity, double exponent) {
        double total = 0;
        for (int rule = 0; rule < rules; rule++) {
            total += 1 / Math.pow(rule + 1, exponent);
        }
        TreeMap<Long, List<List<Integer>>> changes = new TreeMap<>();
        TreeSet<Integer> active = new TreeSet<>();
        at(changes, 0);
        for (int rule = 0; rule < rules; rule++) {
            double width = 1 / Math.pow(rule + 1, exponent) / total * selectivity * RING;
            long begin = mixed(SEED + rule * STEP) >>> 1;
            if (width >= RING) {
                active.add(rule);
                continue;
            }
            if ((long) width == 0) {
                continue;
            }
            long end = (begin + (long) width) & Long.MAX_VALUE;
            if (end < begin) {
                active.add(rule);
            }
            at(changes, begin).get(0).add(rule);
            at(changes, end).get(1).add(rule);
        }
        bounds = new long[changes.size()];
        names = new String[changes.size()][];
        int part = 0;
        for (var change : changes.entrySet()) {
            active.removeAll(change.getValue().get(1));
            active.addAll(change.getValue().get(0));
            bounds[part] = change.getKey();
            names[part++] = active.stream().map(rule -> "consumer_" + rule).toArray(String[]::new);
        }
    }

    private static List<List<Integer>> at(TreeMap<Long, List<List<Integer>>> changes, long bound) {
        return changes.computeIfAbsent(bound, key -> List.of(new ArrayList<>(), new ArrayList<>()));
    }

    /** The consumers whose rules match a record, in the order of the rules. */
    String[] consumers(byte[] data) {
        int found = Arrays.binarySearch(bounds, place(ByteBuffer.wrap(data)));
        return names[found < 0 ? -found - 2 : found];
    }

    private static long mixed(long number) {
        number = (number ^ (number >>> 30)) * 0xBF58476D1CE4E5B9L;
        number = (number ^ (number >>> 27)) * 0x94D049BB133111EBL;
        return number ^ (number >>> 31);
    }

    static long place(ByteBuffer data) {
        return mixed(data.getLong(0) + data.getLong(Long.BYTES) * STEP) >>> 1;
    }
}

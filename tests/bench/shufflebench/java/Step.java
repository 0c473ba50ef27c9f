import java.nio.ByteBuffer;

/** What a consumer does with a record. */
final class Step {
    private Step() {}

    /** Adds a record to a state, and returns its count; `rate`: if not 0, the state is new and begins somewhere below it. */
    static long take(byte[] state, int rate, byte[] record, long time) {
        ByteBuffer data = ByteBuffer.wrap(record);
        ByteBuffer before = ByteBuffer.wrap(state);
        long count = before.getLong();
        long sum = before.getLong();
        long began = count > 0 ? before.getLong() : time;
        if (rate > 0) {
            count = Index.place(data) % rate;
        }
        ByteBuffer after = ByteBuffer.wrap(state);
        after.putLong(++count).putLong(sum + data.getLong(0)).putLong(began).putLong(time);
        after.put(record, 0, Math.min(after.remaining(), record.length));
        return count;
    }
}

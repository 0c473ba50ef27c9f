import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Splits an expression into its tokens. */
final class Tokens {
    private static final Pattern TOKEN = Pattern.compile(
        "\\s*(\"(?:[^\"\\\\]|\\\\.)*\"|'(?:[^'\\\\]|\\\\.)*'|[0-9][0-9_]*(?:\\.[0-9]+)?|[A-Za-z_][A-Za-z_0-9]*|//|<=|>=|==|!=|[-+*%<>()\\[\\]{},:.])");

    private Tokens() {}

    static List<String> of(String text) {
        List<String> tokens = new ArrayList<>();
        Matcher matcher = TOKEN.matcher(text);
        int end = 0;
        while (matcher.find() && matcher.start() == end) {
            tokens.add(matcher.group(1));
            end = matcher.end();
        }
        if (!text.substring(end).isBlank()) {
            throw new IllegalArgumentException("cannot read " + text.substring(end) + " in " + text);
        }
        return tokens;
    }

    static String unquote(String token) {
        return token.substring(1, token.length() - 1).replace("\\\"", "\"").replace("\\'", "'").replace("\\\\", "\\");
    }
}

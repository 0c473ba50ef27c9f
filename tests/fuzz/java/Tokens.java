import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Splits an expression into its tokens. */
final class Tokens {
    private static final Pattern TOKEN = Pattern.compile(
        "\\s*(f?\"(?:[^\"\\\\]|\\\\.)*\"|f?'(?:[^'\\\\]|\\\\.)*'|[0-9][0-9_]*(?:\\.[0-9]+)?|[A-Za-z_][A-Za-z_0-9]*"
            + "|\\*\\*|//|<<|>>|<=|>=|==|!=|[-+*/%<>()\\[\\]{},:.=|&^~])");

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

    static boolean isText(String token) {
        char first = token.charAt(0);
        return first == '"' || first == '\'' || isTemplate(token);
    }

    static boolean isTemplate(String token) {
        return token.length() > 2 && token.charAt(0) == 'f' && (token.charAt(1) == '"' || token.charAt(1) == '\'');
    }

    static String unquote(String token) {
        return unescape(token.substring(1, token.length() - 1));
    }

    static String unescape(String text) {
        StringBuilder plain = new StringBuilder();
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            if (c == '\\') {
                char next = text.charAt(++i);
                plain.append(next == 'n' ? '\n' : next == 't' ? '\t' : next);
            } else {
                plain.append(c);
            }
        }
        return plain.toString();
    }
}

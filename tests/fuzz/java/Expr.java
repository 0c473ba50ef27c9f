import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Compiles the part of Python's expression syntax that the generated topologies use. */
final class Expr {
    /** A compiled expression; names are looked up in the environment. */
    interface Node {
        Object eval(Map<String, Object> env);
    }

    /** A function of the file's `functions` section. */
    record Function(List<String> params, Node body) {}

    private final List<String> tokens;
    private final Map<String, Function> functions;
    private int at;

    private Expr(String text, Map<String, Function> functions) {
        this.tokens = Tokens.of(text);
        this.functions = functions;
    }

    static Node compile(String text, Map<String, Function> functions) {
        Expr parser = new Expr(text, functions);
        Node node = parser.expression();
        if (parser.at < parser.tokens.size()) {
            throw new IllegalArgumentException("unexpected " + parser.tokens.get(parser.at) + " in " + text);
        }
        return node;
    }

    private String peek() {
        return at < tokens.size() ? tokens.get(at) : "";
    }

    private boolean take(String token) {
        if (peek().equals(token)) {
            at++;
            return true;
        }
        return false;
    }

    private void expect(String token) {
        if (!take(token)) {
            throw new IllegalArgumentException("expected " + token + " at " + peek() + " in " + tokens);
        }
    }

    private Node expression() {
        Node value = or();
        if (!take("if")) {
            return value;
        }
        Node condition = or();
        expect("else");
        Node other = expression();
        return env -> Python.truth(condition.eval(env)) ? value.eval(env) : other.eval(env);
    }

    private Node or() {
        Node left = and();
        while (take("or")) {
            Node first = left;
            Node second = and();
            left = env -> {
                Object value = first.eval(env);
                return Python.truth(value) ? value : second.eval(env);
            };
        }
        return left;
    }

    private Node and() {
        Node left = not();
        while (take("and")) {
            Node first = left;
            Node second = not();
            left = env -> {
                Object value = first.eval(env);
                return Python.truth(value) ? second.eval(env) : value;
            };
        }
        return left;
    }

    private Node not() {
        if (take("not")) {
            Node inner = not();
            return env -> !Python.truth(inner.eval(env));
        }
        return comparison();
    }

    private Node comparison() {
        Node left = sum();
        String operator = comparator();
        if (operator == null) {
            return left;
        }
        Node right = sum();
        return env -> Python.compare(operator, left.eval(env), right.eval(env));
    }

    private String comparator() {
        String token = peek();
        switch (token) {
            case "<", ">", "<=", ">=", "==", "!=", "in" -> {
                at++;
                return token;
            }
            case "is" -> {
                at++;
                return take("not") ? "is not" : "is";
            }
            case "not" -> {
                at++;
                expect("in");
                return "not in";
            }
            default -> {
                return null;
            }
        }
    }

    private Node sum() {
        Node left = product();
        while (peek().equals("+") || peek().equals("-")) {
            left = binary(tokens.get(at++), left, product());
        }
        return left;
    }

    private Node product() {
        Node left = unary();
        while (List.of("*", "//", "%").contains(peek())) {
            left = binary(tokens.get(at++), left, unary());
        }
        return left;
    }

    private static Node binary(String operator, Node left, Node right) {
        return env -> Python.binary(operator, left.eval(env), right.eval(env));
    }

    private Node unary() {
        if (take("-")) {
            Node inner = unary();
            return env -> -(Long) inner.eval(env);
        }
        return postfix(atom());
    }

    private Node postfix(Node start) {
        Node node = start;
        while (true) {
            Node inner = node;
            if (take(".")) {
                String name = tokens.get(at++);
                if (take("(")) {
                    List<Node> arguments = list(")");
                    node = env -> Python.method(inner.eval(env), name, all(arguments, env));
                } else {
                    node = env -> Python.field(inner.eval(env), name);
                }
            } else if (take("[")) {
                node = subscript(inner);
            } else {
                return node;
            }
        }
    }

    private Node subscript(Node inner) {
        Node from = peek().equals(":") ? null : expression();
        if (!take(":")) {
            expect("]");
            return env -> Python.item(inner.eval(env), from.eval(env));
        }
        Node to = peek().equals("]") ? null : expression();
        expect("]");
        return env -> Python.slice(inner.eval(env), from == null ? null : (Long) from.eval(env), to == null ? null : (Long) to.eval(env));
    }

    private Node atom() {
        String token = tokens.get(at++);
        char first = token.charAt(0);
        if (first == '"' || first == '\'') {
            String text = Tokens.unquote(token);
            return env -> text;
        }
        if (Character.isDigit(first)) {
            Object number = token.contains(".") ? (Object) Double.parseDouble(token) : (Object) Long.parseLong(token.replace("_", ""));
            return env -> number;
        }
        return switch (token) {
            case "None" -> env -> null;
            case "True" -> env -> true;
            case "False" -> env -> false;
            case "(" -> parenthesis();
            case "[" -> listOrComprehension();
            case "{" -> dict();
            default -> name(token);
        };
    }

    private Node parenthesis() {
        Node first = expression();
        if (take(")")) {
            return first;
        }
        expect(",");
        List<Node> items = list(")");
        items.add(0, first);
        return env -> all(items, env);
    }

    private Node listOrComprehension() {
        if (take("]")) {
            return env -> new ArrayList<>();
        }
        Node first = expression();
        if (take("for")) {
            return comprehension(first);
        }
        List<Node> items = take(",") ? list("]") : closed("]");
        items.add(0, first);
        return env -> all(items, env);
    }

    private List<Node> closed(String end) {
        expect(end);
        return new ArrayList<>();
    }

    private Node comprehension(Node element) {
        String name = tokens.get(at++);
        expect("in");
        Node items = or();
        Node condition = take("if") ? or() : null;
        expect("]");
        return env -> {
            Map<String, Object> scope = new LinkedHashMap<>(env);
            List<Object> result = new ArrayList<>();
            for (Object item : Python.iterate(items.eval(env))) {
                scope.put(name, item);
                if (condition == null || Python.truth(condition.eval(scope))) {
                    result.add(element.eval(scope));
                }
            }
            return result;
        };
    }

    private Node dict() {
        List<Node> keys = new ArrayList<>();
        List<Node> values = new ArrayList<>();
        while (!take("}")) {
            keys.add(expression());
            expect(":");
            values.add(expression());
            if (!peek().equals("}")) {
                expect(",");
            }
        }
        return env -> {
            Map<String, Object> result = new LinkedHashMap<>();
            for (int i = 0; i < keys.size(); i++) {
                result.put((String) keys.get(i).eval(env), values.get(i).eval(env));
            }
            return result;
        };
    }

    private Node name(String name) {
        if (!take("(")) {
            return env -> {
                if (!env.containsKey(name)) {
                    throw new IllegalArgumentException("no name " + name);
                }
                return env.get(name);
            };
        }
        List<Node> arguments = list(")");
        Function function = functions.get(name);
        if (function == null) {
            return env -> Python.call(name, all(arguments, env));
        }
        return env -> {
            Map<String, Object> scope = new LinkedHashMap<>();
            for (int i = 0; i < arguments.size(); i++) {
                scope.put(function.params.get(i), arguments.get(i).eval(env));
            }
            return function.body.eval(scope);
        };
    }

    private List<Node> list(String end) {
        List<Node> items = new ArrayList<>();
        while (!take(end)) {
            items.add(expression());
            if (!peek().equals(end)) {
                expect(",");
            }
        }
        return items;
    }

    private static List<Object> all(List<Node> nodes, Map<String, Object> env) {
        List<Object> values = new ArrayList<>();
        nodes.forEach(node -> values.add(node.eval(env)));
        return values;
    }
}

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
        Node node = parser.top();
        if (parser.at < parser.tokens.size()) {
            throw new IllegalArgumentException("unexpected " + parser.tokens.get(parser.at) + " in " + text);
        }
        return node;
    }

    /** An expression, or a tuple without brackets. */
    private Node top() {
        int start = at;
        if (!peek().equals("*")) {
            Node first = expression();
            if (!peek().equals(",")) {
                return first;
            }
        }
        at = start;
        List<Item> items = items("");
        return env -> all(items, env);
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
        if (take("lambda")) {
            return lambda();
        }
        Node value = or();
        if (!take("if")) {
            return value;
        }
        Node condition = or();
        expect("else");
        Node other = expression();
        return env -> Python.truth(condition.eval(env)) ? value.eval(env) : other.eval(env);
    }

    private Node lambda() {
        List<String> names = new ArrayList<>();
        while (!take(":")) {
            names.add(tokens.get(at++));
            take(",");
        }
        Node body = expression();
        return env -> (Python.Callable) arguments -> {
            Map<String, Object> scope = new LinkedHashMap<>(env);
            for (int i = 0; i < names.size(); i++) {
                scope.put(names.get(i), arguments.get(i));
            }
            return body.eval(scope);
        };
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
        List<String> operators = new ArrayList<>();
        List<Node> operands = new ArrayList<>();
        operands.add(bits());
        for (String operator = comparator(); operator != null; operator = comparator()) {
            operators.add(operator);
            operands.add(bits());
        }
        if (operators.isEmpty()) {
            return operands.get(0);
        }
        return env -> {
            Object left = operands.get(0).eval(env);
            for (int i = 0; i < operators.size(); i++) {
                Object right = operands.get(i + 1).eval(env);
                if (!Python.compare(operators.get(i), left, right)) {
                    return false;
                }
                left = right;
            }
            return true;
        };
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

    private Node bits() {
        return level(0);
    }

    /** The binary operators from the loosest to the tightest. */
    private static final List<List<String>> LEVELS = List.of(
        List.of("|"), List.of("^"), List.of("&"), List.of("<<", ">>"), List.of("+", "-"), List.of("*", "/", "//", "%"));

    private Node level(int level) {
        if (level == LEVELS.size()) {
            return unary();
        }
        Node left = level(level + 1);
        while (LEVELS.get(level).contains(peek())) {
            left = binary(tokens.get(at++), left, level(level + 1));
        }
        return left;
    }

    private static Node binary(String operator, Node left, Node right) {
        return env -> Python.binary(operator, left.eval(env), right.eval(env));
    }

    private Node unary() {
        String sign = peek();
        if (take("-") || take("+") || take("~")) {
            Node inner = unary();
            return env -> Python.unary(sign, inner.eval(env));
        }
        Node base = postfix(atom());
        return take("**") ? binary("**", base, unary()) : base;
    }

    private Node postfix(Node start) {
        Node node = start;
        while (true) {
            Node inner = node;
            if (take(".")) {
                String name = tokens.get(at++);
                if (take("(")) {
                    List<Item> arguments = items(")");
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
        if (Tokens.isTemplate(token)) {
            return template(token.substring(2, token.length() - 1));
        }
        if (Tokens.isText(token)) {
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

    /** An f-string: its texts and its placeholders, of which `!r` is the only conversion. */
    private Node template(String text) {
        List<Node> parts = new ArrayList<>();
        StringBuilder plain = new StringBuilder();
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            if ((c == '{' || c == '}') && i + 1 < text.length() && text.charAt(i + 1) == c) {
                plain.append(c);
                i++;
            } else if (c == '{') {
                int end = closing(text, i);
                String inner = text.substring(i + 1, end);
                boolean repr = inner.endsWith("!r");
                Node node = compile(repr ? inner.substring(0, inner.length() - 2) : inner, functions);
                String before = Tokens.unescape(plain.toString());
                plain.setLength(0);
                parts.add(env -> before);
                parts.add(env -> repr ? Python.repr(node.eval(env)) : Python.str(node.eval(env)));
                i = end;
            } else {
                plain.append(c);
            }
        }
        String rest = Tokens.unescape(plain.toString());
        parts.add(env -> rest);
        return env -> {
            StringBuilder made = new StringBuilder();
            parts.forEach(part -> made.append((String) part.eval(env)));
            return made.toString();
        };
    }

    private static int closing(String text, int open) {
        int depth = 0;
        for (int i = open; i < text.length(); i++) {
            depth += text.charAt(i) == '{' ? 1 : text.charAt(i) == '}' ? -1 : 0;
            if (depth == 0) {
                return i;
            }
        }
        throw new IllegalArgumentException("no end of a placeholder in " + text);
    }

    private Node parenthesis() {
        if (take(")")) {
            return env -> new ArrayList<>();
        }
        int start = at;
        if (!peek().equals("*")) {
            Node first = expression();
            if (take(")")) {
                return first;
            }
            if (take("for")) {
                return closed(comprehension(first, null), ")");
            }
        }
        at = start;
        List<Item> items = items(")");
        return env -> all(items, env);
    }

    private Node listOrComprehension() {
        int start = at;
        if (!peek().equals("*") && !peek().equals("]")) {
            Node first = expression();
            if (take("for")) {
                return closed(comprehension(first, null), "]");
            }
        }
        at = start;
        List<Item> items = items("]");
        return env -> all(items, env);
    }

    private Node closed(Node node, String end) {
        expect(end);
        return node;
    }

    /** A comprehension after its first `for`; with `value` it makes an object. */
    private Node comprehension(Node element, Node value) {
        record Clause(List<String> names, Node items, List<Node> conditions) {}
        List<Clause> clauses = new ArrayList<>();
        do {
            List<String> names = new ArrayList<>();
            while (!take("in")) {
                names.add(tokens.get(at++));
                take(",");
            }
            Clause clause = new Clause(names, or(), new ArrayList<>());
            while (take("if")) {
                clause.conditions.add(or());
            }
            clauses.add(clause);
        } while (take("for"));
        return env -> {
            List<Map<String, Object>> scopes = List.of(env);
            for (Clause clause : clauses) {
                List<Map<String, Object>> inner = new ArrayList<>();
                for (Map<String, Object> outer : scopes) {
                    for (Object item : Python.iterate(clause.items.eval(outer))) {
                        Map<String, Object> scope = new LinkedHashMap<>(outer);
                        if (clause.names.size() == 1) {
                            scope.put(clause.names.get(0), item);
                        } else {
                            List<?> parts = (List<?>) item;
                            for (int i = 0; i < parts.size(); i++) {
                                scope.put(clause.names.get(i), parts.get(i));
                            }
                        }
                        if (clause.conditions.stream().allMatch(condition -> Python.truth(condition.eval(scope)))) {
                            inner.add(scope);
                        }
                    }
                }
                scopes = inner;
            }
            if (value != null) {
                Map<String, Object> made = new LinkedHashMap<>();
                scopes.forEach(scope -> made.put((String) element.eval(scope), value.eval(scope)));
                return made;
            }
            List<Object> result = new ArrayList<>();
            scopes.forEach(scope -> result.add(element.eval(scope)));
            return result;
        };
    }

    private Node dict() {
        List<Node> keys = new ArrayList<>();
        List<Node> values = new ArrayList<>();
        while (!take("}")) {
            if (take("**")) {
                keys.add(null);
                values.add(bits());
            } else {
                Node key = expression();
                expect(":");
                Node value = expression();
                if (take("for")) {
                    return closed(comprehension(key, value), "}");
                }
                keys.add(key);
                values.add(value);
            }
            if (!peek().equals("}")) {
                expect(",");
            }
        }
        return env -> {
            Map<String, Object> result = new LinkedHashMap<>();
            for (int i = 0; i < values.size(); i++) {
                if (keys.get(i) == null) {
                    ((Map<?, ?>) values.get(i).eval(env)).forEach((name, item) -> result.put((String) name, item));
                } else {
                    result.put((String) keys.get(i).eval(env), values.get(i).eval(env));
                }
            }
            return result;
        };
    }

    private Node name(String name) {
        if (!take("(")) {
            return env -> env.containsKey(name) ? env.get(name) : Python.name(name);
        }
        List<Item> arguments = items(")");
        Function function = functions.get(name);
        if (function == null) {
            return env -> {
                Map<String, Object> keywords = new LinkedHashMap<>();
                arguments.stream().filter(each -> each.keyword != null).forEach(each -> keywords.put(each.keyword, each.node.eval(env)));
                return Python.call(name, all(arguments, env), keywords);
            };
        }
        return env -> {
            Map<String, Object> scope = new LinkedHashMap<>();
            for (int i = 0; i < arguments.size(); i++) {
                String parameter = arguments.get(i).keyword == null ? function.params.get(i) : arguments.get(i).keyword;
                scope.put(parameter, arguments.get(i).node.eval(env));
            }
            return function.body.eval(scope);
        };
    }

    /** An element of a display or an argument: plain, starred, or with a keyword. */
    private record Item(Node node, boolean starred, String keyword) {}

    private List<Item> items(String end) {
        List<Item> items = new ArrayList<>();
        while (!(end.isEmpty() ? at == tokens.size() : take(end))) {
            if (take("*")) {
                items.add(new Item(bits(), true, null));
            } else if (at + 1 < tokens.size() && tokens.get(at + 1).equals("=")) {
                String keyword = tokens.get(at);
                at += 2;
                items.add(new Item(expression(), false, keyword));
            } else {
                Node node = expression();
                items.add(new Item(take("for") ? comprehension(node, null) : node, false, null));
            }
            if (!peek().equals(end) && at < tokens.size()) {
                expect(",");
            }
        }
        return items;
    }

    private static List<Object> all(List<Item> items, Map<String, Object> env) {
        List<Object> values = new ArrayList<>();
        for (Item item : items) {
            if (item.starred) {
                values.addAll(Python.iterate(item.node.eval(env)));
            } else if (item.keyword == null) {
                values.add(item.node.eval(env));
            }
        }
        return values;
    }
}

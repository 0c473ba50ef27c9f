import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.kstream.Windowed;

/** What operators and functions of the expressions do: None is null, int is Long, lists and tuples are List, dict is Map. */
final class Python {
    /** A lambda. */
    interface Callable {
        Object call(List<Object> arguments);
    }

    private Python() {}

    static boolean truth(Object value) {
        if (value instanceof Boolean flag) {
            return flag;
        }
        if (value instanceof Number number) {
            return number.doubleValue() != 0;
        }
        if (value instanceof String text) {
            return !text.isEmpty();
        }
        if (value instanceof byte[] bytes) {
            return bytes.length > 0;
        }
        if (value instanceof Bytes bytes) {
            return bytes.get().length > 0;
        }
        if (value instanceof List<?> list) {
            return !list.isEmpty();
        }
        return value instanceof Map<?, ?> map ? !map.isEmpty() : value != null;
    }

    /** True counts as 1. */
    private static Object number(Object value) {
        return value instanceof Boolean flag ? (Object) (flag ? 1L : 0L) : value;
    }

    static Object unary(String operator, Object value) {
        Object number = number(value);
        if (number instanceof Double fraction && !operator.equals("~")) {
            return operator.equals("-") ? -fraction : fraction;
        }
        long whole = (Long) number;
        return operator.equals("-") ? (Object) Math.negateExact(whole) : operator.equals("~") ? (Object) ~whole : (Object) whole;
    }

    static Object binary(String operator, Object left, Object right) {
        if (operator.equals("+") && left instanceof String first && right instanceof String second) {
            return first + second;
        }
        if (operator.equals("+") && left instanceof List<?> first && right instanceof List<?> second) {
            List<Object> joined = new ArrayList<>(first);
            joined.addAll(second);
            return joined;
        }
        if (operator.equals("*") && right instanceof Long times && left instanceof String text) {
            return text.repeat(Math.max(0, times.intValue()));
        }
        if (operator.equals("*") && right instanceof Long times && left instanceof List<?> list) {
            List<Object> repeated = new ArrayList<>();
            for (long i = 0; i < times; i++) {
                repeated.addAll(list);
            }
            return repeated;
        }
        if (operator.equals("%") && left instanceof String text) {
            return printf(text, right instanceof List<?> list ? new ArrayList<Object>(list) : List.of(right));
        }
        if (left instanceof Boolean first && right instanceof Boolean second && List.of("|", "&", "^").contains(operator)) {
            return operator.equals("|") ? first | second : operator.equals("&") ? first & second : first ^ second;
        }
        Object a = number(left);
        Object b = number(right);
        if (a instanceof Long whole && b instanceof Long other && !operator.equals("/")) {
            return whole(operator, whole, other);
        }
        if (a instanceof Number first && b instanceof Number second) {
            return fraction(operator, first.doubleValue(), second.doubleValue());
        }
        throw new IllegalArgumentException("unsupported operand types for " + operator + ": " + left + ", " + right);
    }

    /** `%s`, `%d` and `%%`. */
    private static String printf(String format, List<Object> values) {
        StringBuilder made = new StringBuilder();
        int next = 0;
        for (int i = 0; i < format.length(); i++) {
            char c = format.charAt(i);
            if (c != '%') {
                made.append(c);
            } else {
                made.append(format.charAt(++i) == '%' ? "%" : str(values.get(next++)));
            }
        }
        return made.toString();
    }

    private static Object whole(String operator, long a, long b) {
        return switch (operator) {
            case "+" -> Math.addExact(a, b);
            case "-" -> Math.subtractExact(a, b);
            case "*" -> Math.multiplyExact(a, b);
            case "//" -> Math.floorDiv(a, b);
            case "%" -> Math.floorMod(a, b);
            case "|" -> a | b;
            case "&" -> a & b;
            case "^" -> a ^ b;
            case "<<" -> Math.multiplyExact(a, 1L << b);
            case ">>" -> a >> b;
            case "**" -> {
                long result = 1;
                for (long i = 0; i < b; i++) {
                    result = Math.multiplyExact(result, a);
                }
                yield result;
            }
            default -> throw new IllegalArgumentException(operator);
        };
    }

    private static Object fraction(String operator, double a, double b) {
        return switch (operator) {
            case "+" -> a + b;
            case "-" -> a - b;
            case "*" -> a * b;
            case "/" -> {
                if (b == 0) {
                    throw new ArithmeticException("division by zero");
                }
                yield a / b;
            }
            default -> throw new IllegalArgumentException(operator + " of fractions");
        };
    }

    static boolean compare(String operator, Object left, Object right) {
        return switch (operator) {
            case "is" -> left == right || left != null && right != null && left.getClass() == right.getClass() && left.equals(right);
            case "is not" -> !compare("is", left, right);
            case "==" -> equal(left, right);
            case "!=" -> !equal(left, right);
            case "in" -> contains(right, left);
            case "not in" -> !contains(right, left);
            case "<" -> order(left, right) < 0;
            case "<=" -> order(left, right) <= 0;
            case ">" -> order(left, right) > 0;
            default -> order(left, right) >= 0;
        };
    }

    /** Python's equality: True is 1 is 1.0, and objects are equal in any order of their fields. */
    static boolean equal(Object left, Object right) {
        Object a = number(left);
        Object b = number(right);
        if (a instanceof Number first && b instanceof Number second) {
            return a instanceof Long && b instanceof Long ? a.equals(b) : first.doubleValue() == second.doubleValue();
        }
        if (a instanceof List<?> first && b instanceof List<?> second) {
            if (first.size() != second.size()) {
                return false;
            }
            for (int i = 0; i < first.size(); i++) {
                if (!equal(first.get(i), second.get(i))) {
                    return false;
                }
            }
            return true;
        }
        if (a instanceof Map<?, ?> first && b instanceof Map<?, ?> second) {
            return first.keySet().equals(second.keySet())
                && first.keySet().stream().allMatch(name -> equal(first.get(name), second.get(name)));
        }
        return a == null ? b == null : a.equals(b);
    }

    private static boolean contains(Object container, Object item) {
        if (container instanceof String text) {
            return text.contains((String) item);
        }
        return container instanceof Map<?, ?> map ? map.containsKey(item) : ((List<?>) container).stream().anyMatch(each -> equal(each, item));
    }

    private static int order(Object left, Object right) {
        Object a = number(left);
        Object b = number(right);
        if (a instanceof Long first && b instanceof Long second) {
            return first.compareTo(second);
        }
        if (a instanceof Number first && b instanceof Number second) {
            double x = first.doubleValue();
            double y = second.doubleValue();
            return x < y ? -1 : x > y ? 1 : 0;
        }
        if (a instanceof String first && b instanceof String second) {
            return first.compareTo(second);
        }
        if (a instanceof List<?> first && b instanceof List<?> second) {
            for (int i = 0; i < Math.min(first.size(), second.size()); i++) {
                if (!equal(first.get(i), second.get(i))) {
                    return order(first.get(i), second.get(i));
                }
            }
            return Integer.compare(first.size(), second.size());
        }
        throw new IllegalArgumentException("no order between " + left + " and " + right);
    }

    /** A name that no scope has: what the task knows of the record. */
    static Object name(String name) {
        var record = Here.record();
        return switch (name) {
            case "timestamp" -> record.timestamp();
            case "topic" -> record.topic();
            case "partition" -> (long) record.partition();
            case "offset" -> record.offset();
            case "headers" -> {
                List<Object> headers = new ArrayList<>();
                for (Header header : record.headers()) {
                    headers.add(new ArrayList<Object>(Arrays.asList(header.key(), header.value())));
                }
                yield headers;
            }
            default -> throw new IllegalArgumentException("no name " + name);
        };
    }

    static Object field(Object value, String name) {
        if (value instanceof Windowed<?> windowed) {
            return switch (name) {
                case "key" -> windowed.key();
                case "start" -> windowed.window().start();
                default -> windowed.window().end();
            };
        }
        return item(value, name);
    }

    static Object item(Object value, Object index) {
        if (value instanceof Map<?, ?> map) {
            if (!map.containsKey(index)) {
                throw new IllegalArgumentException("no field " + index);
            }
            return map.get(index);
        }
        int at = ((Long) number(index)).intValue();
        if (value instanceof String text) {
            return String.valueOf(text.charAt(at < 0 ? at + text.length() : at));
        }
        List<?> list = (List<?>) value;
        return list.get(at < 0 ? at + list.size() : at);
    }

    static Object slice(Object value, Long from, Long to) {
        int size = value instanceof String text ? text.length() : ((List<?>) value).size();
        int start = bound(from == null ? 0 : from, size);
        int end = Math.max(start, bound(to == null ? size : to, size));
        return value instanceof String text ? text.substring(start, end) : new ArrayList<>(((List<?>) value).subList(start, end));
    }

    private static int bound(long index, int size) {
        return (int) Math.min(size, Math.max(0, index < 0 ? index + size : index));
    }

    static List<Object> iterate(Object value) {
        if (value instanceof String text) {
            return text.chars().mapToObj(c -> (Object) String.valueOf((char) c)).collect(Collectors.toList());
        }
        return value instanceof Map<?, ?> map ? new ArrayList<>(map.keySet()) : new ArrayList<>((List<?>) value);
    }

    static Object method(Object on, String name, List<Object> arguments) {
        if (on instanceof Map<?, ?> map) {
            return switch (name) {
                case "get" -> map.containsKey(arguments.get(0)) ? map.get(arguments.get(0)) : arguments.size() > 1 ? arguments.get(1) : null;
                case "keys" -> new ArrayList<Object>(map.keySet());
                case "values" -> new ArrayList<Object>(map.values());
                case "items" -> map.entrySet().stream()
                    .map(entry -> (Object) new ArrayList<Object>(Arrays.asList(entry.getKey(), entry.getValue())))
                    .collect(Collectors.toCollection(ArrayList::new));
                default -> throw new IllegalArgumentException("no method " + name + " of an object");
            };
        }
        if (on instanceof List<?> list && name.equals("count")) {
            return list.stream().filter(each -> equal(each, arguments.get(0))).count();
        }
        if (on instanceof Bytes bytes && name.equals("decode")) {
            return new String(bytes.get(), StandardCharsets.UTF_8);
        }
        if (!(on instanceof String text)) {
            throw new IllegalArgumentException("no method " + name + " of " + on);
        }
        return switch (name) {
            case "encode" -> Bytes.wrap(text.getBytes(StandardCharsets.UTF_8));
            case "upper" -> text.toUpperCase();
            case "lower" -> text.toLowerCase();
            case "strip" -> text.strip();
            case "replace" -> text.replace((String) arguments.get(0), (String) arguments.get(1));
            case "join" -> iterate(arguments.get(0)).stream().map(String.class::cast).collect(Collectors.joining(text));
            case "find" -> (long) text.indexOf((String) arguments.get(0));
            case "startswith" -> text.startsWith((String) arguments.get(0));
            case "endswith" -> text.endsWith((String) arguments.get(0));
            case "isdigit" -> !text.isEmpty() && text.chars().allMatch(Character::isDigit);
            case "isalpha" -> !text.isEmpty() && text.chars().allMatch(Character::isLetter);
            case "split" -> arguments.isEmpty()
                ? Arrays.stream(text.trim().split("\\s+")).filter(part -> !part.isEmpty()).collect(Collectors.toCollection(ArrayList<Object>::new))
                : new ArrayList<Object>(Arrays.asList(text.split(Pattern.quote((String) arguments.get(0)), -1)));
            case "rsplit" -> rsplit(text, (String) arguments.get(0));
            default -> throw new IllegalArgumentException("no method " + name);
        };
    }

    /** Splits at the last separator only: the one use that the files make of it. */
    private static List<Object> rsplit(String text, String separator) {
        int at = text.lastIndexOf(separator);
        return at < 0 ? List.of(text) : List.of(text.substring(0, at), text.substring(at + separator.length()));
    }

    static Object call(String name, List<Object> arguments, Map<String, Object> keywords) {
        Object first = arguments.isEmpty() ? null : arguments.get(0);
        Comparator<Object> order = keywords.get("key") instanceof Callable key
            ? (a, b) -> order(key.call(Arrays.asList(a)), key.call(Arrays.asList(b)))
            : Python::order;
        return switch (name) {
            case "str" -> str(first);
            case "int" -> first instanceof String text ? (Object) Long.parseLong(text)
                : first instanceof Double fraction ? (Object) (long) (double) fraction : number(first);
            case "float" -> first instanceof String text ? (Object) Double.parseDouble(text) : (Object) ((Number) number(first)).doubleValue();
            case "bool" -> truth(first);
            case "abs" -> number(first) instanceof Double fraction ? (Object) Math.abs(fraction) : (Object) Math.abs((Long) number(first));
            case "round" -> number(first) instanceof Double fraction ? (Object) (long) Math.rint(fraction) : number(first);
            case "len" -> first instanceof String text ? (Object) (long) text.length() : (Object) (long) iterate(first).size();
            case "min" -> best(values(arguments), order);
            case "max" -> best(values(arguments), (a, b) -> order.compare(b, a));
            case "sum" -> iterate(first).stream().reduce(0L, (a, b) -> binary("+", a, b));
            case "any" -> iterate(first).stream().anyMatch(Python::truth);
            case "all" -> iterate(first).stream().allMatch(Python::truth);
            case "sorted" -> iterate(first).stream()
                .sorted(truth(keywords.get("reverse")) ? (a, b) -> order.compare(b, a) : order)
                .collect(Collectors.toCollection(ArrayList::new));
            case "list", "tuple" -> first == null ? new ArrayList<>() : iterate(first);
            case "set" -> iterate(first).stream().distinct().collect(Collectors.toCollection(ArrayList::new));
            case "dict" -> {
                Map<String, Object> made = new LinkedHashMap<>();
                if (first != null) {
                    ((Map<?, ?>) first).forEach((key, value) -> made.put((String) key, value));
                }
                made.putAll(keywords);
                yield made;
            }
            case "range" -> range(arguments);
            case "zip" -> {
                List<Object> pairs = new ArrayList<>();
                List<Object> others = iterate(arguments.get(1));
                for (Object item : iterate(first)) {
                    if (pairs.size() < others.size()) {
                        pairs.add(new ArrayList<Object>(Arrays.asList(item, others.get(pairs.size()))));
                    }
                }
                yield pairs;
            }
            case "enumerate" -> {
                List<Object> pairs = new ArrayList<>();
                for (Object item : iterate(first)) {
                    pairs.add(new ArrayList<Object>(Arrays.asList((long) pairs.size(), item)));
                }
                yield pairs;
            }
            case "re_match" -> Pattern.matches((String) first, (String) arguments.get(1));
            case "re_split" -> new ArrayList<Object>(Arrays.asList(((String) arguments.get(1)).split((String) first, -1)));
            case "now" -> Here.clock();
            case "header" -> {
                Header header = Here.record().headers().lastHeader((String) first);
                yield header == null || header.value() == null ? null : new String(header.value(), StandardCharsets.UTF_8);
            }
            case "get" -> {
                Object found = first;
                for (String part : ((String) arguments.get(1)).split("\\.")) {
                    found = found instanceof Map<?, ?> map ? map.get(part) : null;
                }
                yield found == null && arguments.size() > 2 ? arguments.get(2) : found;
            }
            case "merge" -> {
                Map<String, Object> merged = new LinkedHashMap<>();
                for (Object each : arguments) {
                    ((Map<?, ?>) each).forEach((key, value) -> merged.put((String) key, value));
                }
                yield merged;
            }
            default -> throw new IllegalArgumentException("no function " + name);
        };
    }

    private static List<Object> range(List<Object> arguments) {
        long from = arguments.size() > 1 ? (Long) arguments.get(0) : 0;
        long to = (Long) arguments.get(arguments.size() > 1 ? 1 : 0);
        List<Object> numbers = new ArrayList<>();
        for (long i = from; i < to; i++) {
            numbers.add(i);
        }
        return numbers;
    }

    /** The first of the smallest ones. */
    private static Object best(List<Object> items, Comparator<Object> order) {
        Object best = items.get(0);
        for (Object item : items) {
            best = order.compare(item, best) < 0 ? item : best;
        }
        return best;
    }

    private static List<Object> values(List<Object> arguments) {
        return arguments.size() == 1 ? iterate(arguments.get(0)) : arguments;
    }

    static String str(Object value) {
        return value instanceof String text ? text : repr(value);
    }

    /** Python's repr() of plain data; texts hold no quotes and fractions are of a moderate size. */
    static String repr(Object value) {
        if (value == null) {
            return "None";
        }
        if (value instanceof Boolean flag) {
            return flag ? "True" : "False";
        }
        if (value instanceof String text) {
            String quote = text.contains("'") && !text.contains("\"") ? "\"" : "'";
            return quote + text.replace("\\", "\\\\").replace(quote, "\\" + quote) + quote;
        }
        if (value instanceof Bytes bytes) {
            return "b" + repr(new String(bytes.get(), StandardCharsets.UTF_8));
        }
        if (value instanceof List<?> list) {
            return list.stream().map(Python::repr).collect(Collectors.joining(", ", "[", "]"));
        }
        if (value instanceof Map<?, ?> map) {
            return map.entrySet().stream().map(entry -> repr(entry.getKey()) + ": " + repr(entry.getValue()))
                .collect(Collectors.joining(", ", "{", "}"));
        }
        if (value instanceof Long) {
            return value.toString();
        }
        double fraction = (Double) value;
        if (fraction == 0 || Double.isNaN(fraction)) {
            return Double.isNaN(fraction) ? "nan" : 1 / fraction < 0 ? "-0.0" : "0.0";
        }
        String plain = new BigDecimal(Double.toString(fraction)).toPlainString();
        return plain.contains(".") ? plain : plain + ".0";
    }
}

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.stream.Collectors;
import org.apache.kafka.streams.kstream.Windowed;

/** What operators and functions of the expressions do: None is null, int is Long, lists and tuples are List, dict is Map. */
final class Python {
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
        if (value instanceof List<?> list) {
            return !list.isEmpty();
        }
        return value instanceof Map<?, ?> map ? !map.isEmpty() : value != null;
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
        if (!(left instanceof Long) || !(right instanceof Long)) {
            throw new IllegalArgumentException("unsupported operand types for " + operator + ": " + left + ", " + right);
        }
        long a = (Long) left;
        long b = (Long) right;
        return switch (operator) {
            case "+" -> Math.addExact(a, b);
            case "-" -> Math.subtractExact(a, b);
            case "*" -> Math.multiplyExact(a, b);
            case "//" -> Math.floorDiv(a, b);
            default -> Math.floorMod(a, b);
        };
    }

    static boolean compare(String operator, Object left, Object right) {
        return switch (operator) {
            case "is" -> left == right || Objects.equals(left, right);
            case "is not" -> !Objects.equals(left, right);
            case "==" -> Objects.equals(left, right);
            case "!=" -> !Objects.equals(left, right);
            case "in" -> contains(right, left);
            case "not in" -> !contains(right, left);
            case "<" -> order(left, right) < 0;
            case "<=" -> order(left, right) <= 0;
            case ">" -> order(left, right) > 0;
            default -> order(left, right) >= 0;
        };
    }

    private static boolean contains(Object container, Object item) {
        if (container instanceof String text) {
            return text.contains((String) item);
        }
        return container instanceof Map<?, ?> map ? map.containsKey(item) : ((List<?>) container).contains(item);
    }

    private static int order(Object left, Object right) {
        if (left instanceof Long a && right instanceof Long b) {
            return a.compareTo(b);
        }
        if (left instanceof String a && right instanceof String b) {
            return a.compareTo(b);
        }
        throw new IllegalArgumentException("no order between " + left + " and " + right);
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
        int at = ((Long) index).intValue();
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
        if (on instanceof Map<?, ?> map && name.equals("get")) {
            return map.containsKey(arguments.get(0)) ? map.get(arguments.get(0)) : arguments.size() > 1 ? arguments.get(1) : null;
        }
        if (!(on instanceof String text)) {
            throw new IllegalArgumentException("no method " + name + " of " + on);
        }
        return switch (name) {
            case "upper" -> text.toUpperCase();
            case "lower" -> text.toLowerCase();
            case "startswith" -> text.startsWith((String) arguments.get(0));
            case "endswith" -> text.endsWith((String) arguments.get(0));
            case "isdigit" -> !text.isEmpty() && text.chars().allMatch(Character::isDigit);
            case "isalpha" -> !text.isEmpty() && text.chars().allMatch(Character::isLetter);
            case "split" -> arguments.isEmpty()
                ? Arrays.stream(text.trim().split("\\s+")).filter(part -> !part.isEmpty()).collect(Collectors.toCollection(ArrayList<Object>::new))
                : new ArrayList<Object>(Arrays.asList(text.split(java.util.regex.Pattern.quote((String) arguments.get(0)), -1)));
            case "rsplit" -> rsplit(text, (String) arguments.get(0));
            default -> throw new IllegalArgumentException("no method " + name);
        };
    }

    /** Splits at the last separator only: the one use that the files make of it. */
    private static List<Object> rsplit(String text, String separator) {
        int at = text.lastIndexOf(separator);
        return at < 0 ? List.of(text) : List.of(text.substring(0, at), text.substring(at + separator.length()));
    }

    static Object call(String name, List<Object> arguments) {
        Object first = arguments.isEmpty() ? null : arguments.get(0);
        return switch (name) {
            case "str" -> first == null ? "None" : first instanceof Boolean flag ? (flag ? "True" : "False") : scalar(first);
            case "int" -> first instanceof String text ? (Object) Long.parseLong(text) : first;
            case "bool" -> truth(first);
            case "abs" -> Math.abs((Long) first);
            case "len" -> first instanceof String text ? (Object) (long) text.length() : (Object) (long) iterate(first).size();
            case "min" -> values(arguments).stream().min(ORDER).orElseThrow();
            case "max" -> values(arguments).stream().max(ORDER).orElseThrow();
            case "sum" -> iterate(first).stream().mapToLong(item -> (Long) item).sum();
            case "sorted" -> iterate(first).stream().sorted(ORDER).collect(Collectors.toCollection(ArrayList::new));
            case "list", "tuple" -> iterate(first);
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

    private static final Comparator<Object> ORDER = Python::order;

    private static List<Object> values(List<Object> arguments) {
        return arguments.size() == 1 ? iterate(arguments.get(0)) : arguments;
    }

    private static String scalar(Object value) {
        if (value instanceof String || value instanceof Long) {
            return value.toString();
        }
        throw new IllegalArgumentException("str() of " + value);
    }
}

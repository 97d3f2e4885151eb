// Call one function of a compiled submission: read its arguments, write its result as JSON in the form of values.py.
//
// Arguments are prefixed with counts, so reading needs no look-ahead: a list is its length and its items; a string is its
// length, a colon and its bytes. The function's parameters decide which types are read.
#include <bits/stdc++.h>
#include <unistd.h>

namespace judge_driver {

enum { EXCHANGE = 3 };

struct Reader {
    std::string text;
    size_t at = 0;

    Reader() {
        char part[65536];
        off_t offset = 0;
        for (ssize_t got; (got = pread(EXCHANGE, part, sizeof part, offset)) > 0; offset += got) text.append(part, got);
    }
    [[noreturn]] void fail(const char *what) {
        std::fprintf(stderr, "the arguments do not fit the signature: %s\n", what);
        _exit(3);
    }
    std::string word() {
        while (at < text.size() && text[at] == ' ') ++at;
        size_t start = at;
        while (at < text.size() && text[at] != ' ') ++at;
        if (start == at) fail("too few");
        return text.substr(start, at - start);
    }
    size_t count() { return std::stoull(word()); }
    std::string bytes() {
        while (at < text.size() && text[at] == ' ') ++at;
        size_t colon = text.find(':', at);
        if (colon == std::string::npos) fail("a text was expected");
        size_t length = std::stoull(text.substr(at, colon - at));
        at = colon + 1 + length;
        return text.substr(colon + 1, length);
    }
};

template <class T> struct Value;

template <class T> T read(Reader &reader) { return Value<T>::read(reader); }
template <class T> void write(std::string &out, const T &value) { Value<T>::write(out, value); }

inline void write_text(std::string &out, const std::string &text) {
    out += '"';
    for (unsigned char c : text) {
        if (c == '"' || c == '\\') {
            out += '\\';
            out += c;
        } else if (c < 0x20 || c == 0x7F) {
            char code[8];
            std::snprintf(code, sizeof code, "\\u%04x", c);
            out += code;
        } else {
            out += c;
        }
    }
    out += '"';
}

template <class T, class = void> struct Number {
    static T read(Reader &reader) {
        std::string word = reader.word();
        if constexpr (std::is_floating_point_v<T>) return static_cast<T>(std::stold(word));
        else if constexpr (std::is_unsigned_v<T>) return static_cast<T>(std::stoull(word));
        else return static_cast<T>(std::stoll(word));
    }
    static void write(std::string &out, const T &value) {
        if constexpr (std::is_floating_point_v<T>) {
            if (std::isnan(value)) out += "NaN";
            else if (std::isinf(value)) out += value > 0 ? "Infinity" : "-Infinity";
            else {
                char digits[64];
                std::snprintf(digits, sizeof digits, "%.17Lg", static_cast<long double>(value));
                out += digits;
                if (!std::strpbrk(digits, ".eE")) out += ".0";
            }
        } else {
            out += std::to_string(value);
        }
    }
};
template <class T> struct Value : Number<T> {
    static_assert(std::is_arithmetic_v<T>, "the judge cannot encode this type");
};
template <> struct Value<bool> {
    static bool read(Reader &reader) { return reader.count() != 0; }
    static void write(std::string &out, bool value) { out += value ? "true" : "false"; }
};
template <> struct Value<char> {
    static char read(Reader &reader) {
        std::string text = reader.bytes();
        if (text.size() != 1) reader.fail("one character was expected");
        return text[0];
    }
    static void write(std::string &out, char value) { write_text(out, std::string(1, value)); }
};
template <> struct Value<std::string> {
    static std::string read(Reader &reader) { return reader.bytes(); }
    static void write(std::string &out, const std::string &value) { write_text(out, value); }
};

template <class Items> void write_items(std::string &out, const Items &items) {
    out += '[';
    bool first = true;
    for (const auto &item : items) {
        if (!first) out += ',';
        first = false;
        write<std::decay_t<decltype(item)>>(out, item);
    }
    out += ']';
}

template <class C> struct Sequence {
    static C read(Reader &reader) {
        C items;
        for (size_t left = reader.count(); left; --left)
            items.insert(items.end(), judge_driver::read<typename C::value_type>(reader));
        return items;
    }
    static void write(std::string &out, const C &value) { write_items(out, value); }
};
template <class T> struct Value<std::vector<T>> : Sequence<std::vector<T>> {};
template <class T> struct Value<std::deque<T>> : Sequence<std::deque<T>> {};
template <class T> struct Value<std::list<T>> : Sequence<std::list<T>> {};
template <> struct Value<std::vector<bool>> {
    static std::vector<bool> read(Reader &reader) {
        std::vector<bool> items(reader.count());
        for (size_t i = 0; i < items.size(); ++i) items[i] = judge_driver::read<bool>(reader);
        return items;
    }
    static void write(std::string &out, const std::vector<bool> &value) {
        out += '[';
        for (size_t i = 0; i < value.size(); ++i) out += i ? (value[i] ? ",true" : ",false") : (value[i] ? "true" : "false");
        out += ']';
    }
};
template <class T, size_t N> struct Value<std::array<T, N>> {
    static std::array<T, N> read(Reader &reader) {
        std::array<T, N> items{};
        if (reader.count() != N) reader.fail("an array of another length was expected");
        for (auto &item : items) item = judge_driver::read<T>(reader);
        return items;
    }
    static void write(std::string &out, const std::array<T, N> &value) { write_items(out, value); }
};

template <class C> struct Set : Sequence<C> {
    static void write(std::string &out, const C &value) {
        out += "{\"set\":";
        write_items(out, value);
        out += '}';
    }
};
template <class T> struct Value<std::set<T>> : Set<std::set<T>> {};
template <class T> struct Value<std::unordered_set<T>> : Set<std::unordered_set<T>> {};

template <class C> struct Map {
    static C read(Reader &reader) {
        C items;
        for (size_t left = reader.count(); left; --left) {
            auto key = judge_driver::read<typename C::key_type>(reader);
            items.emplace(std::move(key), judge_driver::read<typename C::mapped_type>(reader));
        }
        return items;
    }
    static void write(std::string &out, const C &value) {
        out += "{\"dict\":[";
        bool first = true;
        for (const auto &[key, item] : value) {
            if (!first) out += ',';
            first = false;
            out += '[';
            judge_driver::write<typename C::key_type>(out, key);
            out += ',';
            judge_driver::write<typename C::mapped_type>(out, item);
            out += ']';
        }
        out += "]}";
    }
};
template <class K, class T> struct Value<std::map<K, T>> : Map<std::map<K, T>> {};
template <class K, class T> struct Value<std::unordered_map<K, T>> : Map<std::unordered_map<K, T>> {};

template <class... T> struct Value<std::tuple<T...>> {
    static std::tuple<T...> read(Reader &reader) {
        if (reader.count() != sizeof...(T)) reader.fail("a tuple of another length was expected");
        return std::tuple<T...>{judge_driver::read<T>(reader)...};
    }
    static void write(std::string &out, const std::tuple<T...> &value) {
        out += "{\"tuple\":[";
        bool first = true;
        std::apply([&](const auto &...item) {
            ((out += first ? "" : ",", first = false, judge_driver::write<std::decay_t<decltype(item)>>(out, item)), ...);
        }, value);
        out += "]}";
    }
};
template <class A, class B> struct Value<std::pair<A, B>> {
    static std::pair<A, B> read(Reader &reader) {
        auto both = judge_driver::read<std::tuple<A, B>>(reader);
        return {std::get<0>(both), std::get<1>(both)};
    }
    static void write(std::string &out, const std::pair<A, B> &value) {
        judge_driver::write<std::tuple<A, B>>(out, std::tuple<A, B>(value));
    }
};
template <class T> struct Value<std::optional<T>> {
    static void write(std::string &out, const std::optional<T> &value) {
        if (value) judge_driver::write<T>(out, *value);
        else out += "null";
    }
};

// A void function is judged by its first argument, which it is assumed to change.
template <class R, class... A> int drive(R (*function)(A...)) {
    Reader reader;
    std::tuple<std::decay_t<A>...> arguments{judge_driver::read<std::decay_t<A>>(reader)...};
    if (reader.at < reader.text.size()) reader.fail("too many");
    std::string out = "V";
    if constexpr (std::is_void_v<R>) {
        std::apply(function, arguments);
        if constexpr (sizeof...(A) > 0) write<std::decay_t<decltype(std::get<0>(arguments))>>(out, std::get<0>(arguments));
        else out += "null";
    } else {
        write<std::decay_t<R>>(out, std::apply(function, arguments));
    }
    std::fflush(nullptr);
    if (ftruncate(EXCHANGE, 0) != 0) return 3;
    for (size_t at = 0; at < out.size();) {
        ssize_t done = pwrite(EXCHANGE, out.data() + at, out.size() - at, at);
        if (done <= 0) return 3;
        at += done;
    }
    return 0;
}

}  // namespace judge_driver

using namespace std;

//! What is done to a good JSON value or text to make it strange.

use serde_json::{Map, Value, json};

use crate::dice::Dice;

/// Strings that mean something to somebody.
pub const WORDS: [&str; 70] = [
    "",
    " ",
    "a",
    "A",
    "0",
    "-",
    ".",
    "..",
    "/",
    "a/b",
    "a.b/c",
    "default",
    "kube-system",
    "fuzz-0",
    "null",
    "true",
    "1.5",
    "-1",
    "1e9",
    "9223372036854775807",
    "18446744073709551616",
    "1Ki",
    "-1Ei",
    "1e400",
    "0.0000000001",
    "1.0.0.0",
    "::1",
    "10.0.0.0/33",
    "10.0.0.1/8",
    "1h",
    "1h-1m",
    "-1s",
    "99999999999h",
    "2026-01-01T00:00:00Z",
    "0000-01-01T00:00:00Z",
    "9999-12-31T23:59:60Z",
    "2026-13-45T99:99:99Z",
    "-9999-01-01T00:00:00.999999999Z",
    "$patch",
    "$retainKeys",
    "$setElementOrder/containers",
    "$deleteFromPrimitiveList/finalizers",
    "delete",
    "replace",
    "merge",
    "f:metadata",
    "k:{}",
    "v:1",
    "i:0",
    "self",
    "self.a[0]",
    "oldSelf",
    "self.all(x, self.all(y, self.all(z, x == y)))",
    "((((((((((",
    "(?i)(a+)+$",
    "[",
    "\\",
    "\u{0}",
    "é",
    "💥",
    "\u{202e}rtl",
    "ﬀ",
    "İ",
    "a\u{301}",
    "\n",
    "\t\"'",
    "%",
    "{{",
    "~1~0",
    "a=b,c in (d)",
];

const NUMBERS: [&str; 24] = [
    "0",
    "-0",
    "-0.0",
    "1",
    "-1",
    "0.5",
    "1e0",
    "255",
    "65535",
    "65536",
    "2147483647",
    "2147483648",
    "-2147483649",
    "9007199254740993",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "-9223372036854775808",
    "1e19",
    "1e308",
    "5e-324",
    "1e-400",
    "1e999",
];

/// Marks a string that is written without its quotes: numbers that no `Value` can hold.
const BARE: &str = "\u{1}bare:";

pub fn word(dice: &mut Dice) -> String {
    match dice.below(12) {
        0 => "a".repeat([63, 64, 253, 254, 1_000, 70_000][dice.below(6)]),
        1 => (0..dice.below(9))
            .map(|_| char::from_u32(dice.next() as u32 % 0x11_0000).unwrap_or('\u{fffd}'))
            .collect(),
        2 => format!("{}{}", dice.pick(&WORDS), dice.pick(&WORDS)),
        _ => dice.pick(&WORDS).to_owned(),
    }
}

pub fn number(dice: &mut Dice) -> Value {
    let text = dice.pick(&NUMBERS);
    match serde_json::from_str(text) {
        Ok(value) if !dice.one_in(3) => value,
        _ => Value::String(format!("{BARE}{text}")),
    }
}

fn anything(dice: &mut Dice, spare: &Value) -> Value {
    match dice.below(10) {
        0 => Value::Null,
        1 => dice.one_in(2).into(),
        2 | 3 => number(dice),
        4 | 5 => word(dice).into(),
        6 => json!([]),
        7 => json!({}),
        8 => deep(dice, Value::Null),
        _ => any_part(spare, dice).clone(),
    }
}

/// Inside of up to 200 others.
fn deep(dice: &mut Dice, inside: Value) -> Value {
    let levels = [2, 10, 60, 63, 64, 65, 126, 127, 128, 199, 200][dice.below(11)];
    let style = dice.below(3);
    let key = if dice.one_in(2) { "a" } else { "properties" };
    (0..levels).fold(inside, |value, level| match (style, level % 2) {
        (0, _) | (2, 0) => Value::Array(vec![value]),
        _ => Value::Object(Map::from_iter([(key.to_owned(), value)])),
    })
}

fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(all) => all.iter().map(count).sum::<usize>(),
        Value::Object(map) => map.values().map(count).sum(),
        _ => 0,
    }
}

/// Some value within this one, or the whole.
pub fn any_part<'a>(value: &'a Value, dice: &mut Dice) -> &'a Value {
    fn nth<'a>(value: &'a Value, at: &mut usize) -> Option<&'a Value> {
        if *at == 0 {
            return Some(value);
        }
        *at -= 1;
        match value {
            Value::Array(all) => all.iter().find_map(|one| nth(one, at)),
            Value::Object(map) => map.values().find_map(|one| nth(one, at)),
            _ => None,
        }
    }
    let mut at = dice.below(count(value));
    nth(value, &mut at).unwrap_or(value)
}

fn any_part_mut<'a>(value: &'a mut Value, dice: &mut Dice) -> &'a mut Value {
    let mut at = value;
    loop {
        // Down with the odds of the number of values there: leaves are as likely as they are many.
        let all = count(at);
        if all == 1 || dice.one_in(all.min(12)) {
            return at;
        }
        at = match at {
            Value::Array(items) => {
                let index = dice.below(items.len());
                &mut items[index]
            }
            Value::Object(map) => {
                let index = dice.below(map.len());
                map.values_mut().nth(index).unwrap()
            }
            leaf => return leaf,
        };
    }
}

/// One change somewhere in it. `spare` lends parts.
pub fn value(value: &mut Value, spare: &Value, dice: &mut Dice) {
    let part = any_part_mut(value, dice);
    match (dice.below(10), &mut *part) {
        (0..=2, Value::Object(map)) if !map.is_empty() => {
            let index = dice.below(map.len());
            let key = map.keys().nth(index).unwrap().clone();
            let old = map.remove(&key).unwrap();
            match dice.below(5) {
                0 | 1 => {}
                // Under another name: another known one, or a strange one.
                2 => drop(map.insert(word(dice), old)),
                3 => {
                    map.insert(any_key(spare, dice), old.clone());
                    map.insert(key, old);
                }
                _ => drop(map.insert(key, anything(dice, spare))),
            }
        }
        (3, Value::Object(map)) => drop(map.insert(any_key(spare, dice), anything(dice, spare))),
        (0..=1, Value::Array(all)) if !all.is_empty() => drop(all.remove(dice.below(all.len()))),
        (2..=3, Value::Array(all)) if !all.is_empty() => {
            let one = all[dice.below(all.len())].clone();
            let times = if dice.one_in(20) { 300 } else { 1 };
            all.extend(std::iter::repeat_n(one, times));
        }
        (4, Value::Array(all)) => all.push(anything(dice, spare)),
        (0..=2, Value::String(text)) => {
            let at = dice.below(text.chars().count() + 1);
            let (start, end): (String, String) = (text.chars().take(at).collect(), text.chars().skip(at).collect());
            *text = match dice.below(3) {
                0 => start,
                1 => format!("{start}{}{end}", word(dice)),
                _ => text.to_uppercase(),
            };
        }
        (0..=3, Value::Number(_)) => *part = number(dice),
        (4, _) => {
            let old = part.take();
            *part = deep(dice, old);
        }
        (5, _) => {
            let old = part.take();
            *part = match dice.below(3) {
                0 => json!([old]),
                1 => json!({"name": old}),
                _ => old.to_string().into(),
            };
        }
        _ => *part = anything(dice, spare),
    }
}

/// The name of some field of it.
fn any_key(spare: &Value, dice: &mut Dice) -> String {
    for _ in 0..6 {
        if let Value::Object(map) = any_part(spare, dice)
            && !map.is_empty()
        {
            return map.keys().nth(dice.below(map.len())).unwrap().clone();
        }
    }
    word(dice)
}

/// As JSON text, with the bare ones bare.
pub fn text(value: &Value) -> Vec<u8> {
    let text = value.to_string();
    let mark = "\"\\u0001bare:";
    if !text.contains(mark) {
        return text.into_bytes();
    }
    let mut pieces = text.split(mark);
    let mut bare = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        bare.push_str(&piece.replacen('"', "", 1));
    }
    bare.into_bytes()
}

const PIECES: [&[u8]; 24] = [
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\"",
    b"\\u0000",
    b"\\ud800",
    b"null",
    b"\"kind\":\"x\",",
    b"\"a\":1,\"a\":2,",
    b"\xff",
    b"\xc3\x28",
    b"\xf0\x9f",
    b"\0",
    b"1e999",
    b"-",
    b"\n---\n",
    b"&a ",
    b"*a",
    b"!!binary ",
    b"<<: ",
    b"\xef\xbb\xbf",
];

/// One change of the bytes.
pub fn bytes(bytes: &mut Vec<u8>, dice: &mut Dice) {
    let at = dice.below(bytes.len() + 1);
    let end = (at + dice.below(40)).min(bytes.len());
    match dice.below(7) {
        0 => bytes.truncate(at),
        1 | 2 if at < bytes.len() => bytes[at] ^= 1 << dice.below(8),
        3 => drop(bytes.drain(at..end)),
        4 => {
            let copy = bytes[at..end].to_vec();
            bytes.splice(at..at, copy);
        }
        5 => {
            let noise: Vec<u8> = (0..dice.below(12)).map(|_| dice.next() as u8).collect();
            bytes.splice(at..at, noise);
        }
        _ => {
            let piece = dice.pick(&PIECES).to_vec();
            bytes.splice(at..at, piece);
        }
    }
}

/// YAML that is small and wants to be large, or is strange in other ways of its own.
pub fn yaml_bomb(dice: &mut Dice) -> Vec<u8> {
    let head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: bomb}\n";
    match dice.below(7) {
        0 => {
            let mut text = format!("{head}data:\n  a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
            for level in 1..10 + dice.below(20) {
                let before = level - 1;
                text += &format!(
                    "  a{level}: &a{level} [{}]\n",
                    vec![format!("*a{before}"); 9].join(", ")
                );
            }
            text
        }
        1 => format!("{head}data: &a {{b: *a}}\n"),
        2 => format!("{head}data: {}x{}\n", "[".repeat(5_000), "]".repeat(5_000)),
        3 => format!("{head}data: {}x\n", "{a: ".repeat(3_000)),
        4 => format!("{head}---\n{head}"),
        5 => format!(
            "{head}data: {{<<: [{{a: b}}, {{c: d}}], ? [1] : 2, 1: 2, ~: x, 0x1f: y, .nan: z, 2001-01-01: w}}\n"
        ),
        _ => format!("%YAML 9.9\n---\n{head}data: !!binary |\n  ////\nbinaryData: !foo 'x'\n... \n"),
    }
    .into_bytes()
}

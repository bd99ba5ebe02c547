//! Patches of all four kinds for an object that is there.

use serde_json::{Value, json};

use super::{Seen, any, known, subresource};
use crate::corpus::Corpus;
use crate::dice::Dice;
use crate::mutate;
use crate::request::Sent;

fn pointer(value: &Value, dice: &mut Dice) -> String {
    let mut at = value;
    let mut text = String::new();
    loop {
        if dice.one_in(4) && !text.is_empty() {
            return text;
        }
        let key;
        (key, at) = match at {
            Value::Object(map) if !map.is_empty() => {
                let (key, value) = map.iter().nth(dice.below(map.len())).unwrap();
                (key.replace('~', "~0").replace('/', "~1"), value)
            }
            Value::Array(all) if !all.is_empty() => {
                let index = dice.below(all.len());
                (index.to_string(), &all[index])
            }
            _ => {
                if dice.one_in(3) {
                    text += dice.pick(&[
                        "/-",
                        "/0",
                        "/-1",
                        "/x",
                        "/01",
                        "/99999999999999999999",
                        "/~",
                        "/~2",
                        "/",
                    ]);
                }
                return text;
            }
        };
        text = format!("{text}/{key}");
    }
}

pub fn patch(corpus: &Corpus, seen: &Seen, dice: &mut Dice) -> Sent {
    let (place, object) = known(corpus, seen, dice);
    let spare = any(&corpus.objects, dice).unwrap();
    let place = subresource(place, dice);
    let (media, mut body) = match dice.below(4) {
        0 => {
            let operation = |dice: &mut Dice| {
                let from = if dice.one_in(2) { &object } else { spare };
                json!({"op": dice.pick(&["add", "remove", "replace", "move", "copy", "test", "nope"]),
                    "path": pointer(&object, dice), "from": pointer(&object, dice), "value": mutate::any_part(from, dice)})
            };
            let count = if dice.one_in(200) { 10_001 } else { dice.below(4) };
            (
                "application/json-patch+json",
                Value::Array((0..count).map(|_| operation(dice)).collect()),
            )
        }
        kind => {
            // Some fields of the object, changed.
            let mut body = object.clone();
            if let Value::Object(map) = &mut body {
                for key in ["metadata", "spec", "status", "data"] {
                    if dice.one_in(2) {
                        map.remove(key);
                    }
                }
                if kind == 3 {
                    map.insert("metadata".into(), json!({"name": object["metadata"]["name"]}));
                }
            }
            for _ in 0..dice.below(3) {
                mutate::value(&mut body, spare, dice);
            }
            if kind == 2 && dice.one_in(2) {
                directive(&mut body, dice);
            }
            let media = [
                "application/merge-patch+json",
                "application/strategic-merge-patch+json",
                "application/apply-patch+yaml",
            ][kind - 1];
            (media, body)
        }
    };
    if dice.one_in(3) {
        mutate::value(&mut body, spare, dice);
    }
    let mut sent = Sent::new("PATCH", &place).with_body(media, mutate::text(&body));
    if media.contains("apply") && !dice.one_in(10) {
        sent.set_parameter("fieldManager", dice.pick(&["a", "b", "c"]));
        if dice.one_in(2) {
            sent.set_parameter("force", "true");
        }
    }
    sent
}

/// One of strategic merge's own words, somewhere.
fn directive(body: &mut Value, dice: &mut Dice) {
    let pairs = [
        ("$patch", json!("delete")),
        ("$patch", json!("replace")),
        ("$patch", json!("merge")),
        ("$patch", json!(1)),
        ("$retainKeys", json!(["name", "x"])),
        ("$retainKeys", json!([1])),
        ("$setElementOrder/containers", json!([{"name": "b"}, {"name": "a"}])),
        ("$setElementOrder/finalizers", json!(["b", "a", null])),
        ("$deleteFromPrimitiveList/finalizers", json!(["a"])),
        ("$deleteFromPrimitiveList/x", json!({})),
    ];
    let (key, word) = pairs[dice.below(pairs.len())].clone();
    let mut at = body;
    loop {
        at = match at {
            Value::Object(map) if map.is_empty() || dice.one_in(3) => {
                map.insert(key.to_owned(), word);
                return;
            }
            Value::Object(map) => {
                let index = dice.below(map.len());
                map.values_mut().nth(index).unwrap()
            }
            Value::Array(all) if all.is_empty() || dice.one_in(3) => {
                all.push(json!({ key: word }));
                return;
            }
            Value::Array(all) => {
                let index = dice.below(all.len());
                &mut all[index]
            }
            _ => return,
        };
    }
}

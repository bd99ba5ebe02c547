//! Makes objects: good ones of a small world where everything meets everything, and the same with something wrong.

use serde_json::{Map, Number, Value, json};

use super::dice::Dice;

/// The kinds, in the order their lists are taken.
pub const KINDS: [&str; 4] = ["Subnet", "SubnetPool", "SubnetClaim", "SubnetPoolClaim"];

const NAMESPACES: [&str; 2] = ["ns", "other"];
const POOLS: [&str; 4] = ["p", "q", "child", "grandchild"];
/// Of the two networks below, most of them touching.
const RANGES: [&str; 16] = [
    "10.0.0.0/24",
    "10.0.0.0/25",
    "10.0.0.128/25",
    "10.0.0.0/28",
    "10.0.0.16/28",
    "10.0.0.32/28",
    "10.0.0.64/27",
    "10.0.0.7/30",
    "10.0.1.0/24",
    "10.0.0.0/23",
    "0.0.0.0/1",
    "255.255.255.255/32",
    "fd00::/120",
    "fd00::/124",
    "fd00::80/121",
    "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128",
];
const IDS: [&str; 4] = ["a", "b", "cluster-1", "x.y-z"];
const TIMES: [&str; 4] = [
    "2026-01-01T00:00:00Z",
    "2026-01-01T00:00:01Z",
    "2026-01-01T00:05:00Z",
    "1970-01-01T00:00:00Z",
];
pub const FINALIZER: &str = "ipam.plexaubnet.io/finalizer";

/// The uid of an incarnation, as Kubernetes gives them: nothing else ever has it.
fn uid(kind: &str, namespace: &str, name: &str, incarnation: usize) -> String {
    let kind = KINDS.iter().position(|k| *k == kind).unwrap_or(9);
    let namespace = NAMESPACES.iter().position(|n| *n == namespace).unwrap_or(9);
    let name: u64 = name
        .bytes()
        .fold(0, |all, byte| (all * 131 + u64::from(byte)) & 0xFFFF_FFFF);
    format!("{name:08x}-{kind:04}-{namespace:04}-8000-{incarnation:012}")
}

/// Somebody of this kind: name and uid.
fn someone(dice: &mut Dice, kind: &str, namespace: &str) -> (String, String) {
    let name = match kind {
        "SubnetPool" => (*dice.pick(&POOLS)).to_owned(),
        "Subnet" => format!("s{}", dice.roll(8)),
        "SubnetClaim" => format!("c{}", dice.roll(6)),
        _ => format!("pc{}", dice.roll(3)),
    };
    let uid = uid(kind, namespace, &name, dice.roll(2));
    (name, uid)
}

fn chance<T>(dice: &mut Dice, one_in: usize, value: impl FnOnce(&mut Dice) -> T) -> Option<T> {
    dice.one_in(one_in).then(|| value(dice))
}

/// A good object of this kind. Names repeat, uids and versions do not fit each other: what a watch may bring over years.
pub fn object(dice: &mut Dice, kind: &str, revision: u64) -> Value {
    let namespace = if dice.one_in(10) { NAMESPACES[1] } else { NAMESPACES[0] };
    let (name, uid) = someone(dice, kind, namespace);
    let mut object = json!({
        "apiVersion": "plexaubnet.io/v1alpha1", "kind": kind,
        "metadata": {
            "namespace": namespace, "name": name, "uid": uid, "resourceVersion": revision.to_string(),
            "generation": 1 + dice.roll(3), "creationTimestamp": dice.pick(&TIMES),
        },
        "spec": spec(dice, kind, namespace),
    });
    let metadata = &mut object["metadata"];
    if let Some(time) = chance(dice, 12, |dice| *dice.pick(&TIMES)) {
        metadata["deletionTimestamp"] = json!(time);
    }
    if !dice.one_in(4) {
        let usual = vec![FINALIZER];
        let odd = [
            vec!["foregroundDeletion"],
            vec![FINALIZER, "x/y"],
            vec!["x/y", FINALIZER, FINALIZER],
        ];
        metadata["finalizers"] = json!(if dice.one_in(5) { dice.pick(&odd) } else { &usual });
    }
    if kind == "SubnetPool" && dice.one_in(4) {
        metadata["labels"] = json!({"plexaubnet.io/parent": dice.pick(&POOLS)});
    }
    if kind == "SubnetPool" && dice.one_in(12) {
        let (name, value) = *dice.pick(&[("usher.dev/paused", "true"), ("usher.dev/recalculate", "now")]);
        metadata["annotations"] = json!({name: value});
    }
    // A claim's Subnet has its owner; others sometimes do.
    let owned = object["spec"].get("claimRef").is_some();
    if if owned { !dice.one_in(6) } else { dice.one_in(8) } {
        object["metadata"]["ownerReferences"] = owners(dice, kind, namespace, &object["spec"]);
    }
    if dice.one_in(3) {
        object["status"] = status(dice, kind);
    }
    object
}

fn spec(dice: &mut Dice, kind: &str, namespace: &str) -> Value {
    // A holder's clusterID is a uid.
    let id = match dice.roll(6) {
        0 => someone(dice, "SubnetPool", namespace).1,
        1 => someone(dice, "SubnetPoolClaim", namespace).1,
        _ => (*dice.pick(&IDS)).to_owned(),
    };
    let mut spec = match kind {
        // Mostly one that others fit into.
        "SubnetPool" if !dice.one_in(4) => json!({"cidr": dice.pick(&["10.0.0.0/23", "10.0.0.0/24", "fd00::/120"])}),
        "SubnetPool" => json!({"cidr": dice.pick(&RANGES)}),
        "SubnetPoolClaim" => json!({"parentPoolRef": dice.pick(&POOLS), "desiredBlockSize": 1 + dice.roll(128)}),
        "Subnet" => json!({"poolRef": dice.pick(&POOLS), "cidr": dice.pick(&RANGES), "clusterID": id}),
        _ => json!({"poolRef": dice.pick(&POOLS), "clusterID": id}),
    };
    match kind {
        "Subnet" if dice.one_in(3) => {
            let (name, uid) = someone(dice, "SubnetClaim", namespace);
            spec["claimRef"] = json!({"name": name, "uid": uid});
        }
        "SubnetClaim" if dice.one_in(3) => spec["requestedCIDR"] = json!(dice.pick(&RANGES)),
        "SubnetClaim" if dice.one_in(2) => spec["blockSize"] = json!(dice.pick(&[24, 25, 28, 30, 32, 120, 124, 128])),
        "SubnetPool" => {
            if dice.one_in(2) {
                spec["defaultBlockSize"] = json!(1 + dice.roll(128));
            }
            if !dice.one_in(4) {
                spec["maxBlockSize"] = json!(dice.pick(&[28, 32, 128, 128]));
            }
            if dice.one_in(12) {
                spec["minBlockSize"] = json!(dice.pick(&[1, 24, 29, 120]));
            }
            if dice.one_in(6) {
                spec["exclude"] = json!([dice.pick(&RANGES), dice.pick(&RANGES)]);
            }
            if dice.one_in(3) {
                spec["strategy"] = json!("Buddy");
            }
            if dice.one_in(4) {
                spec["reuseDelaySeconds"] = json!(dice.pick(&[0_u32, 1, 60, 2_592_000]));
            }
        }
        _ => {}
    }
    spec
}

fn owners(dice: &mut Dice, kind: &str, namespace: &str, spec: &Value) -> Value {
    let reference = |kind: &str, name: &Value, uid: &Value| json!({"apiVersion": "plexaubnet.io/v1alpha1", "kind": kind, "name": name, "uid": uid, "controller": true});
    let of_kind = if kind == "Subnet" {
        "SubnetClaim"
    } else {
        "SubnetPoolClaim"
    };
    let (name, uid) = someone(dice, of_kind, namespace);
    let other = reference(of_kind, &json!(name), &json!(uid));
    // Mostly whom the object names itself, as it is in a world in order.
    let named = match (spec.get("claimRef"), spec.get("clusterID")) {
        (Some(claim), _) => reference("SubnetClaim", &claim["name"], &claim["uid"]),
        (None, Some(id)) if kind == "Subnet" => reference("SubnetPool", &json!(dice.pick(&POOLS)), id),
        _ => return json!([other]),
    };
    if dice.one_in(4) {
        json!([named, other])
    } else {
        json!([named])
    }
}

fn status(dice: &mut Dice, kind: &str) -> Value {
    let generation = json!(1 + dice.roll(3));
    let conditions = json!([{
        "type": dice.pick(&["Ready", "Held", "Stalled", "Exhausted"]), "status": dice.pick(&["True", "False", "Unknown"]),
        "reason": "Some", "message": "words", "observedGeneration": generation,
        "lastTransitionTime": dice.pick(&TIMES),
    }]);
    match kind {
        "Subnet" => json!({
            "observedGeneration": generation,
            "phase": dice.pick(&["Pending", "Allocated", "Allocated", "Allocated", "Failed", "Released"]),
            "allocatedAt": dice.pick(&TIMES),
        }),
        "SubnetClaim" => json!({
            "observedGeneration": generation, "phase": dice.pick(&["Pending", "Bound", "Bound", "Error"]),
            "allocatedCIDR": dice.pick(&RANGES), "subnetRef": format!("s{}", dice.roll(8)), "conditions": conditions,
        }),
        "SubnetPoolClaim" => json!({
            "observedGeneration": generation, "phase": dice.pick(&["Pending", "Bound", "Error"]),
            "boundPoolName": dice.pick(&POOLS), "subnetRef": format!("s{}", dice.roll(8)), "conditions": conditions,
        }),
        _ => json!({
            "observedGeneration": generation, "allocatedCount": dice.roll(900), "conditions": conditions,
            "allocatedCIDRsOmitted": dice.one_in(2),
        }),
    }
}

/// Something that belongs nowhere.
pub fn nonsense(dice: &mut Dice) -> Value {
    match dice.roll(12) {
        0 => Value::Null,
        1 => json!(dice.one_in(2)),
        2 => json!([]),
        3 => json!({}),
        4 => json!(*dice.pick(&[i64::MIN, i64::MAX, -1, 0, 129, 255, 256, 1 << 32])),
        5 => json!(u64::MAX),
        6 => Number::from_f64(*dice.pick(&[0.5, -1e300, 1e300])).map_or(Value::Null, Value::Number),
        7 => json!(text(dice)),
        8 => json!("x".repeat(dice.roll(3000))),
        9 => json!(dice.pick(&[
            "",
            " ",
            "\u{0}",
            "a\u{301}\u{202e}\u{1F4A9}",
            "../../..",
            "null",
            "{{}}",
            "%s%n",
            "\n"
        ])),
        10 => json!([[[[[[[[{"a": []}]]]]]]]]),
        _ => json!({"spec": {"spec": {"cidr": 4}}}),
    }
}

/// A text like a CIDR, and what people and fuzzers make of one.
pub fn text(dice: &mut Dice) -> String {
    const LETTERS: &[u8] = b"0123456789abcdefABCDEF.:/ -%+x";
    match dice.roll(4) {
        0 => (0..dice.roll(20)).map(|_| char::from(*dice.pick(LETTERS))).collect(),
        1 => {
            let octet = |dice: &mut Dice| dice.roll(260);
            let (a, b, c, d) = (octet(dice), octet(dice), octet(dice), octet(dice));
            format!("{a}.{b}.{c}.{d}/{}", dice.roll(36))
        }
        2 => {
            let groups: Vec<String> = (0..1 + dice.roll(8))
                .map(|_| format!("{:x}", dice.roll(0x1_0010)))
                .collect();
            format!(
                "{}{}/{}",
                groups.join(":"),
                if dice.one_in(2) { "::" } else { "" },
                dice.roll(132)
            )
        }
        _ => {
            let mut text = (*dice.pick(&RANGES)).to_owned().into_bytes();
            for _ in 0..1 + dice.roll(3) {
                let at = dice.roll(text.len());
                match dice.roll(3) {
                    0 => text[at] = *dice.pick(LETTERS),
                    1 => text.insert(at, *dice.pick(LETTERS)),
                    _ => drop(text.remove(at)),
                }
                if text.is_empty() {
                    break;
                }
            }
            String::from_utf8_lossy(&text).into_owned()
        }
    }
}

/// Spoils an object in one place: something is missing, of another type, or not what anybody would write.
pub fn spoil(dice: &mut Dice, value: &mut Value) {
    let stops = dice.one_in(4);
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            let name = fields.keys().nth(dice.roll(fields.len())).cloned().unwrap_or_default();
            match fields.get_mut(&name) {
                Some(inside) if !stops => spoil(dice, inside),
                _ => spoil_fields(dice, fields, &name),
            }
        }
        Value::Array(items) if !items.is_empty() && !stops => {
            let at = dice.roll(items.len());
            if dice.one_in(4) {
                items.push(items[at].clone());
            } else {
                spoil(dice, &mut items[at]);
            }
        }
        other => *other = nonsense(dice),
    }
}

fn spoil_fields(dice: &mut Dice, fields: &mut Map<String, Value>, name: &str) {
    match dice.roll(4) {
        0 => drop(fields.remove(name)),
        1 => drop(fields.insert("unknown".into(), nonsense(dice))),
        2 => {
            // What belongs to one field in another.
            let from = fields.keys().nth(dice.roll(fields.len())).cloned().unwrap_or_default();
            let value = fields.get(&from).cloned().unwrap_or_default();
            fields.insert(name.to_owned(), value);
        }
        _ => drop(fields.insert(name.to_owned(), nonsense(dice))),
    }
}

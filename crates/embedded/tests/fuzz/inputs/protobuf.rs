//! Bodies in protobuf: what the reference wrote, with fields lost, doubled, renumbered or broken at any depth.

use std::sync::LazyLock;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::Value;

use super::{any, from_corpus};
use crate::corpus::Corpus;
use crate::dice::Dice;
use crate::mutate;
use crate::request::Sent;

/// Bytes and JSON of the same objects, which the decoder's own tests read.
const RECORDED: &str = include_str!("../../../src/api/protobuf/recorded.txt");
const MAGIC: &[u8] = b"k8s\0";
/// Field numbers that a message may have; few have more.
const NUMBERS: usize = 32;

#[derive(Debug)]
struct Written {
    api_version: String,
    kind: String,
    /// After what every body begins with.
    envelope: Vec<Field>,
}

static WRITTEN: LazyLock<Vec<Written>> = LazyLock::new(|| {
    RECORDED
        .lines()
        .map(|line| {
            let mut words = line.rsplit('\t');
            let object: Value = serde_json::from_str(words.next().unwrap()).unwrap();
            let bytes = BASE64_STANDARD.decode(words.next().unwrap()).unwrap();
            let text = |field: &str| object[field].as_str().unwrap().to_owned();
            let mut envelope = split(bytes.strip_prefix(MAGIC).unwrap()).unwrap();
            let kind = text("kind");
            if kind != "DeleteOptions" {
                for message in envelope.iter_mut().filter(|field| field.tag >> 3 == 2) {
                    message.bytes = without_history(&message.bytes);
                }
            }
            Written {
                api_version: text("apiVersion"),
                kind,
                envelope,
            }
        })
        .collect()
});

/// Nobody creates what says a namespace, a uid or a version that are another's.
fn without_history(message: &[u8]) -> Vec<u8> {
    let mut fields = split(message).unwrap();
    for metadata in fields.iter_mut().filter(|field| field.tag == 1 << 3 | 2) {
        let mut inside = split(&metadata.bytes).unwrap();
        inside.retain(|field| !matches!(field.tag >> 3, 3 | 5 | 6));
        metadata.bytes = join(&inside);
    }
    join(&fields)
}

/// A field as it stands: its tag, and its bytes without their length if they have one.
#[derive(Debug, Clone)]
struct Field {
    tag: u64,
    bytes: Vec<u8>,
}

pub(super) fn protobuf(corpus: &Corpus, dice: &mut Dice) -> Sent {
    let written = any(&WRITTEN, dice).unwrap();
    let mut fields = written.envelope.clone();
    for _ in 0..dice.below(5) {
        change(&mut fields, dice, 0);
    }
    let mut bytes = [MAGIC.to_vec(), join(&fields)].concat();
    if dice.one_in(6) {
        mutate::bytes(&mut bytes, dice);
    }
    let sent = match written.kind.as_str() {
        "DeleteOptions" => Sent::new("DELETE", any(&corpus.places, dice).unwrap()),
        _ => place(corpus, written, dice),
    };
    sent.with_body("application/vnd.kubernetes.protobuf", bytes)
}

/// A request that sends the same kind, if there is one.
fn place(corpus: &Corpus, written: &Written, dice: &mut Dice) -> Sent {
    let is_same = |sent: &&Sent| {
        matches!(sent.method.as_str(), "POST" | "PUT")
            && serde_json::from_slice::<Value>(&sent.body)
                .is_ok_and(|body| body["kind"] == *written.kind && body["apiVersion"] == *written.api_version)
    };
    let same: Vec<&Sent> = corpus.requests.iter().filter(is_same).collect();
    match any(&same, dice) {
        Some(sent) if !dice.one_in(10) => (*sent).clone(),
        _ => from_corpus(corpus, dice),
    }
}

/// Somewhere in the message, or in a message within it.
fn change(fields: &mut Vec<Field>, dice: &mut Dice, depth: usize) {
    let Some(at) = (!fields.is_empty()).then(|| dice.below(fields.len())) else {
        return;
    };
    if depth < 8
        && !dice.one_in(4)
        && fields[at].tag & 7 == 2
        && let Some(mut inner) = split(&fields[at].bytes)
        && !inner.is_empty()
    {
        change(&mut inner, dice, depth + 1);
        fields[at].bytes = join(&inner);
        return;
    }
    match dice.below(9) {
        0 => drop(fields.remove(at)),
        1 => fields.push(fields[at].clone()),
        2 => {
            let other = dice.below(fields.len());
            fields.swap(at, other);
        }
        3 => fields[at].tag = (dice.below(NUMBERS) as u64) << 3 | fields[at].tag & 7,
        4 => fields[at].tag = fields[at].tag & !7 | dice.below(8) as u64,
        5 => mutate::bytes(&mut fields[at].bytes, dice),
        6 => {
            fields[at].bytes = (0..dice.below(300)).fold(Vec::new(), |inner, _| {
                join(&[Field {
                    tag: fields[at].tag,
                    bytes: inner,
                }])
            })
        }
        7 => {
            let many = fields[at].clone();
            fields.extend(std::iter::repeat_n(many, dice.below(200)));
        }
        _ => fields[at].bytes = mutate::WORDS[dice.below(mutate::WORDS.len())].as_bytes().to_vec(),
    }
}

/// A message's fields, if it is one.
fn split(mut bytes: &[u8]) -> Option<Vec<Field>> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes)?;
        let length = match tag & 7 {
            0 => {
                let before = bytes;
                varint(&mut bytes)?;
                let length = before.len() - bytes.len();
                bytes = before;
                length
            }
            1 => 8,
            2 => usize::try_from(varint(&mut bytes)?).ok()?,
            5 => 4,
            _ => return None,
        };
        let (value, rest) = bytes.split_at_checked(length)?;
        fields.push(Field {
            tag,
            bytes: value.to_vec(),
        });
        bytes = rest;
    }
    Some(fields)
}

fn join(fields: &[Field]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for field in fields {
        push_varint(&mut bytes, field.tag);
        if field.tag & 7 == 2 {
            push_varint(&mut bytes, field.bytes.len() as u64);
        }
        bytes.extend(&field.bytes);
    }
    bytes
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn push_varint(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

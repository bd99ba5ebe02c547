//! The next input: a good request, changed in one or several ways, or one made for the state at hand.

mod around;
mod patches;
mod protobuf;

use serde_json::{Value, json};

use around::{ACCEPTS, METHODS, headers, path, query};
use patches::patch;
use protobuf::protobuf;

use crate::corpus::Corpus;
use crate::custom;
use crate::dice::Dice;
use crate::mutate;
use crate::request::Sent;

const JSON: &str = "application/json";

/// What a batch has learnt from the answers so far.
#[derive(Debug, Default)]
pub struct Seen {
    /// Where an object is, and what it is.
    pub objects: Vec<(String, Value)>,
    pub tokens: Vec<String>,
    pub definitions: Vec<Value>,
    pub revision: u64,
}

impl Seen {
    pub fn note(&mut self, sent: &Sent, code: u16, answer: &Value) {
        if let Some(token) = answer
            .pointer("/metadata/continue")
            .and_then(Value::as_str)
            .filter(|t| !t.is_empty())
        {
            push(&mut self.tokens, token.to_owned());
        }
        let metadata = &answer["metadata"];
        if let Some(Ok(revision)) = metadata["resourceVersion"].as_str().map(str::parse) {
            self.revision = self.revision.max(revision);
        }
        if !matches!(code, 200 | 201) || sent.method == "GET" {
            return;
        }
        let (Some(name), Some(_)) = (metadata["name"].as_str(), metadata["uid"].as_str()) else {
            return;
        };
        if answer["kind"] == "CustomResourceDefinition" {
            push(&mut self.definitions, answer.clone());
        }
        let place = match sent.method.as_str() {
            "POST" => format!("{}/{name}", sent.path.trim_end_matches('/')),
            _ => sent.path.clone(),
        };
        push(&mut self.objects, (place, answer.clone()));
    }
}

fn push<T>(all: &mut Vec<T>, one: T) {
    const KEPT: usize = 60;
    if all.len() == KEPT {
        all.remove(0);
    }
    all.push(one);
}

pub fn next(corpus: &Corpus, seen: &Seen, dice: &mut Dice) -> Sent {
    let mut sent = match dice.below(100) {
        0..30 => from_corpus(corpus, dice),
        30..38 => {
            let mut sent = from_corpus(corpus, dice);
            for _ in 0..=dice.below(3) {
                mutate::bytes(&mut sent.body, dice);
            }
            sent
        }
        38..40 => Sent::new(
            dice.pick(&["POST", "PATCH", "PUT"]),
            dice.pick(&[
                "/api/v1/namespaces/default/configmaps",
                "/api/v1/namespaces/default/configmaps/bomb?fieldManager=f",
            ]),
        )
        .with_body(
            dice.pick(&["application/yaml", "application/apply-patch+yaml"]),
            mutate::yaml_bomb(dice),
        ),
        40..54 => patch(corpus, seen, dice),
        54..62 => put_back(corpus, seen, dice),
        62..74 => read(corpus, seen, dice),
        74..80 => custom::definition(corpus, seen, dice),
        80..92 => custom::object(corpus, seen, dice).unwrap_or_else(|| from_corpus(corpus, dice)),
        92..97 => protobuf(corpus, dice),
        _ => delete(corpus, seen, dice),
    };
    if dice.one_in(6) {
        query(&mut sent, seen, dice);
    }
    if dice.one_in(12) {
        path(&mut sent, dice);
    }
    if dice.one_in(10) {
        headers(&mut sent, dice);
    }
    if dice.one_in(40) {
        sent.method = dice.pick(&METHODS).to_owned();
    }
    sent
}

fn any<'a, T>(all: &'a [T], dice: &mut Dice) -> Option<&'a T> {
    all.get(dice.below(all.len()))
}

fn from_corpus(corpus: &Corpus, dice: &mut Dice) -> Sent {
    let mut sent = any(&corpus.requests, dice).unwrap().clone();
    if let Ok(mut body) = serde_json::from_slice::<Value>(&sent.body) {
        let spare = any(&corpus.objects, dice).unwrap();
        for _ in 0..dice.below(4) {
            mutate::value(&mut body, spare, dice);
        }
        // A new name: it is created, not refused for being there.
        if sent.method == "POST"
            && dice.one_in(2)
            && let Some(name) = body.pointer_mut("/metadata/name")
        {
            *name = format!("n{}", dice.below(200)).into();
        }
        sent.body = mutate::text(&body);
    }
    sent
}

/// An object that is there: where it is, and itself.
fn known<'a>(corpus: &'a Corpus, seen: &'a Seen, dice: &mut Dice) -> (String, Value) {
    match any(&seen.objects, dice) {
        Some((place, object)) if !dice.one_in(3) => (place.clone(), object.clone()),
        _ => {
            let place = any(&corpus.places, dice).unwrap().clone();
            let name = place.rsplit('/').next().unwrap_or_default();
            let object = corpus.objects.iter().find(|object| object["metadata"]["name"] == name);
            (place.clone(), object.cloned().unwrap_or_default())
        }
    }
}

fn subresource(place: String, dice: &mut Dice) -> String {
    match dice.below(6) {
        0 => format!("{place}/status"),
        1 if dice.one_in(2) => format!("{place}/scale"),
        2 if dice.one_in(4) => format!(
            "{place}/{}",
            dice.pick(&["finalize", "eviction", "binding", "token", "log", "exec", "x"])
        ),
        _ => place,
    }
}

fn put_back(corpus: &Corpus, seen: &Seen, dice: &mut Dice) -> Sent {
    let (place, mut object) = known(corpus, seen, dice);
    let spare = any(&corpus.objects, dice).unwrap();
    if dice.one_in(2)
        && let Some(Value::Object(map)) = object.get_mut("metadata")
    {
        map.remove("resourceVersion");
    }
    for _ in 0..=dice.below(3) {
        mutate::value(&mut object, spare, dice);
    }
    Sent::new("PUT", &subresource(place, dice)).with_body(JSON, mutate::text(&object))
}

fn read(corpus: &Corpus, seen: &Seen, dice: &mut Dice) -> Sent {
    let (place, _) = known(corpus, seen, dice);
    let place = match dice.below(5) {
        0 => subresource(place, dice),
        1 => any(&corpus.requests, dice).unwrap().path.clone(),
        _ => place
            .rsplit_once('/')
            .map(|(collection, _)| collection.to_owned())
            .unwrap_or_default(),
    };
    let mut sent = Sent::new("GET", &place);
    if dice.one_in(3) {
        sent.set_parameter("limit", dice.pick(&["1", "2", "7"]));
    }
    for _ in 0..dice.below(4) {
        query(&mut sent, seen, dice);
    }
    if dice.one_in(3) {
        sent.set_header("accept", dice.pick(&ACCEPTS));
    }
    sent
}

fn delete(corpus: &Corpus, seen: &Seen, dice: &mut Dice) -> Sent {
    let (place, _) = known(corpus, seen, dice);
    let collection = dice.one_in(15);
    let place = if collection {
        place.rsplit_once('/').unwrap_or_default().0.to_owned()
    } else {
        place
    };
    let mut body = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
    if dice.one_in(2) {
        body["propagationPolicy"] = dice.pick(&["Background", "Foreground", "Orphan", "x"]).into();
    }
    if dice.one_in(2) {
        body["gracePeriodSeconds"] = mutate::number(dice);
    }
    if dice.one_in(4) {
        body["preconditions"] = json!({"uid": mutate::word(dice)});
    }
    if dice.one_in(4) {
        mutate::value(
            &mut body,
            &json!({"dryRun": ["All"], "preconditions": {"resourceVersion": "1"}, "orphanDependents": true}),
            dice,
        );
    }
    let sent = Sent::new("DELETE", &place);
    if dice.one_in(2) {
        sent
    } else {
        sent.with_body(JSON, mutate::text(&body))
    }
}

//! What kube-apiserver 1.36.3 answered, and what we answer (D1 to D5).
//!
//! The JSON files beside this one hold schemas, objects and the real server's answers, recorded once by creating a CRD
//! for each schema and writing each object through the API. An answer is either the object as it was stored, with the
//! warnings about unknown fields, or the causes of a refusal, sorted since the reference walks its maps at random.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod budget;
mod crds;
mod language;
mod objects;
mod properties;
mod stored;
mod watches;
#[path = "../deletion/world.rs"]
#[allow(dead_code)]
mod world;

use serde_json::{Value, json};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const THINGS: &str = "/apis/t.example.com/v1/namespaces/default/things";

/// The definition of things, in these versions.
fn things(versions: &[Value]) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.t.example.com"},
        "spec": {"group": "t.example.com", "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": versions}})
}

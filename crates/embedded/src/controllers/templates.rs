//! Pods as templates say, and the names that templates are known by.

use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::Value;

/// What hashes are written with: no vowels, so that no words appear.
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// A pod as a template says, controlled by `owner`, after which its name is generated.
pub(super) fn pod(template: &PodTemplateSpec, owner: OwnerReference) -> Pod {
    let meta = template.metadata.as_ref();
    Pod {
        metadata: ObjectMeta {
            generate_name: Some(format!("{}-", owner.name)),
            labels: meta.and_then(|meta| meta.labels.clone()),
            annotations: meta.and_then(|meta| meta.annotations.clone()),
            finalizers: meta.and_then(|meta| meta.finalizers.clone()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: template.spec.clone(),
        status: None,
    }
}

/// The label `pod-template-hash` of a template. `collisions` makes another one of the same template.
pub(super) fn template_hash(template: &PodTemplateSpec, collisions: Option<i32>) -> String {
    let mut bytes = serde_json::to_vec(template).unwrap_or_default();
    if let Some(collisions) = collisions {
        bytes.extend(collisions.to_le_bytes());
    }
    letters(bytes.iter().fold(FNV_BASIS, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(FNV_PRIME)
    }))
}

/// The label `controller.kubernetes.io/hash` of a revision's data: the reference's own number, since both write the data
/// with sorted keys.
pub(super) fn revision_hash(data: &Value, collisions: i32) -> String {
    let text = go_json(data) + &collisions.to_string();
    letters(
        text.bytes()
            .fold(FNV_BASIS, |hash, byte| hash.wrapping_mul(FNV_PRIME) ^ u32::from(byte)),
    )
}

const FNV_BASIS: u32 = 0x811c_9dc5;
const FNV_PRIME: u32 = 0x0100_0193;

/// JSON as Go writes it: with `<`, `>` and `&` escaped.
fn go_json(value: &Value) -> String {
    value
        .to_string()
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

/// A number in the reference's letters: one for each decimal digit.
fn letters(number: u32) -> String {
    number
        .to_string()
        .bytes()
        .filter_map(|digit| LETTERS.get(usize::from(digit) % LETTERS.len()))
        .map(|letter| char::from(*letter))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn c4_a_templates_hash_is_stable_and_changes_with_the_template_and_with_collisions() {
        let template = |image: &str| -> PodTemplateSpec {
            serde_json::from_value(json!({"metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "main", "image": image}]}}))
            .unwrap()
        };
        let hash = template_hash(&template("a"), None);
        assert_eq!(hash, template_hash(&template("a"), None));
        assert_ne!(hash, template_hash(&template("b"), None));
        assert_ne!(hash, template_hash(&template("a"), Some(1)));
        assert!(hash.bytes().all(|letter| LETTERS.contains(&letter)), "{hash}");
    }

    #[test]
    fn c5_a_number_is_written_as_the_reference_writes_it() {
        // The digit '0' is byte 48, and 48 % 27 is 21: the letter at that place is a 4; and so on.
        assert_eq!(letters(1_234_567_890), "56789bcdf4");
    }
}

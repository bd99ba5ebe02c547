//! Lists as they are written: from the stored bytes, without reading them.

use serde_json::json;

use super::verbs::Call;
use crate::fault::Fault;
use crate::registry::ask::Target;
use crate::registry::read::Listed;
use crate::registry::{Registry, object};

impl Call<'_> {
    /// A list, each object copied once from where it is stored. Items of built-in kinds do not repeat their type, as the
    /// reference's do not.
    pub(super) fn list_bytes(&self, target: &Target, listed: &Listed) -> Result<Vec<u8>, Fault> {
        let row = &target.resource.row;
        let sizes: usize = listed.entries.iter().map(|entry| entry.value.len() + 40).sum();
        let mut bytes = Vec::with_capacity(sizes + 256);
        let mut metadata = json!({"resourceVersion": listed.revision.to_string()});
        let map = object::as_map(&mut metadata);
        // Lists of custom resources say so even where nothing follows.
        if !listed.token.is_empty() || target.resource.is_custom() {
            map.insert("continue".to_owned(), listed.token.clone().into());
        }
        if let Some(remaining) = listed.remaining {
            map.insert("remainingItemCount".to_owned(), remaining.into());
        }
        let head = format!(
            r#"{{"kind":{},"apiVersion":{},"metadata":{metadata},"items":["#,
            json!(&*row.list_kind),
            json!(target.api_version()),
        );
        bytes.extend_from_slice(head.as_bytes());
        let skip = if target.resource.is_custom() {
            0
        } else {
            object::type_length(&target.api_version(), &row.kind)
        };
        for (index, entry) in listed.entries.iter().enumerate() {
            if index > 0 {
                bytes.push(b',');
            }
            if Registry::is_plain(&target.resource, &target.version.name, entry.revision) {
                let start = bytes.len();
                entry.value.write_from(skip, &mut bytes, entry.revision);
                if skip > 0 {
                    debug_assert_eq!(bytes.get(start), Some(&b'{'));
                }
            } else {
                let mut object =
                    self.registry()
                        .present(&target.resource, &target.version.name, &entry.value, entry.revision)?;
                if skip > 0 {
                    let map = object::as_map(&mut object);
                    map.remove("apiVersion");
                    map.remove("kind");
                }
                bytes.extend_from_slice(object.to_string().as_bytes());
            }
        }
        bytes.extend_from_slice(b"]}\n");
        Ok(bytes)
    }
}

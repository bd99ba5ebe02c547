//! Serialisations of an event.

use std::collections::BTreeSet;

use http::Method;
use http_body_util::BodyExt;
use usher_embedded::ApiBody;

use super::asks::{CONFIG_MAPS, config_map, create, in_memory, send};

const OBJECT: &str = "application/json";
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";

#[tokio::test]
async fn s9_an_event_is_serialised_once_for_each_representation_not_for_each_watcher() {
    let cluster = in_memory();
    let path = format!("{CONFIG_MAPS}?watch=true");
    let mut watches: Vec<ApiBody> = Vec::new();
    for n in 0..1_000 {
        let accept = [("accept", [OBJECT, METADATA, TABLE][n % 3])];
        let response = send(&cluster, Method::GET, &path, &accept, String::new()).await;
        watches.push(response.into_body());
    }
    // The first line of a Table says what its columns are, the later ones do not.
    for name in ["first", "second", "third"] {
        let before = cluster.store_stats().renderings;
        create(&cluster, &config_map(name, 100)).await;
        let mut lines = BTreeSet::new();
        for watch in &mut watches {
            let line = watch.frame().await.unwrap().unwrap().into_data().unwrap();
            assert!(String::from_utf8_lossy(&line).contains(name));
            // One buffer, not one that is like it.
            lines.insert(line.as_ptr() as usize);
        }
        assert_eq!(lines.len(), 3, "{name}");
        assert_eq!(cluster.store_stats().renderings - before, 3, "{name}");
    }
}

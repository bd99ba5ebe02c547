//! What happened to whoever broke an invariant: to find out why from a run that cannot be had again.

use super::history::{Entry, Seen};

/// Held while an entry is judged. If that panics, all that happened to the entry's clusterID is told, by revision.
pub struct Story<'e> {
    pub entries: &'e [Entry],
    pub entry: &'e Entry,
}

impl Drop for Story<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let about = cluster_id(self.entry);
        eprintln!("what happened to clusterID {about:?}, by revision:");
        for entry in self.entries.iter().filter(|entry| cluster_id(entry) == about) {
            let object = match &entry.object {
                Seen::Claim(claim) => serde_json::to_string(claim),
                Seen::Subnet(subnet) => serde_json::to_string(subnet),
                _ => continue,
            };
            let gone = if entry.gone { " gone" } else { "" };
            eprintln!("{}{gone} {}", entry.revision, object.unwrap_or_default());
        }
    }
}

fn cluster_id(entry: &Entry) -> Option<&str> {
    match &entry.object {
        Seen::Claim(claim) => Some(&claim.spec.cluster_id),
        Seen::Subnet(subnet) => Some(&subnet.spec.cluster_id),
        _ => None,
    }
}

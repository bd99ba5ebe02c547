//! A writer: it alone writes its ConfigMaps, and remembers what it asked and what was acknowledged.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::chance::Chance;
use crate::ledger::{Fact, Slot, fact};

/// What was asked and not answered, if anything.
#[derive(Debug, Clone, PartialEq)]
pub enum Asked {
    Write { serial: u64 },
    Delete,
}

pub fn map(name: &str, serial: u64) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": {"serial": serial.to_string()}})).unwrap()
}

/// Until the server is gone.
pub async fn write(client: kube::Client, number: usize, mut slots: Vec<Slot>, mut chance: Chance) -> Vec<Slot> {
    let maps: Api<ConfigMap> = Api::namespaced(client, "default");
    loop {
        let at = usize::try_from(chance.between(0, slots.len() as u64 - 1)).unwrap();
        let slot = &mut slots[at];
        let serial = chance.next() >> 16;
        let outcome = match &slot.known {
            None => {
                slot.asked = Some(Asked::Write { serial });
                let made = maps.create(&PostParams::default(), &map(&slot.name, serial)).await;
                made.map(|map| Some(fact(&map)))
            }
            Some(known) => match chance.between(0, 3) {
                0 => {
                    slot.asked = Some(Asked::Delete);
                    let gone = maps.delete(&slot.name, &DeleteParams::default()).await;
                    gone.map(|_| None)
                }
                1 => {
                    slot.asked = Some(Asked::Write { serial });
                    let patch = Patch::Merge(json!({"data": {"serial": serial.to_string()}}));
                    let made = maps.patch(&slot.name, &PatchParams::default(), &patch).await;
                    made.map(|map| Some(fact(&map)))
                }
                _ => {
                    slot.asked = Some(Asked::Write { serial });
                    let mut new = map(&slot.name, serial);
                    new.metadata.resource_version = Some(known.revision.to_string());
                    let made = maps.replace(&slot.name, &PostParams::default(), &new).await;
                    made.map(|map| Some(fact(&map)))
                }
            },
        };
        match outcome {
            Ok(now) => {
                slot.acknowledge(now);
            }
            Err(kube::Error::Api(status)) => panic!("writer {number}: {} was refused: {status:?}", slot.name),
            // No answer: it may be written or not.
            Err(_) => return slots,
        }
    }
}

impl Slot {
    fn acknowledge(&mut self, now: Option<Fact>) {
        self.asked = None;
        self.acknowledged.extend(now.clone());
        self.writes += 1;
        self.known = now;
    }
}

//! A kube-runtime controller with children, a status and a finalizer: the smallest operator that has everything.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::controller::Action;
use kube::runtime::finalizer::{Event, finalizer};
use kube::runtime::wait::{await_condition, conditions};
use kube::runtime::{Controller, WatchStreamExt as _, watcher};
use kube::{Api, CustomResource, CustomResourceExt as _, Resource as _, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{World, soon};

const FINALIZER: &str = "example.com/gardener";
const MANAGER: &str = "gardener";

#[derive(CustomResource, Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "Garden",
    namespaced,
    status = "GardenStatus"
)]
struct GardenSpec {
    /// A ConfigMap each.
    beds: Vec<String>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
struct GardenStatus {
    observed_generation: i64,
    beds: usize,
}

async fn reconcile(
    garden: Arc<Garden>,
    client: Arc<kube::Client>,
) -> Result<Action, kube::runtime::finalizer::Error<kube::Error>> {
    let gardens: Api<Garden> = Api::default_namespaced(client.as_ref().clone());
    finalizer(&gardens, FINALIZER, garden, |event| async {
        match event {
            Event::Apply(garden) => plant(&garden, &client).await,
            Event::Cleanup(garden) => bury(&garden, &client).await,
        }
    })
    .await
}

async fn plant(garden: &Garden, client: &kube::Client) -> Result<Action, kube::Error> {
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let params = PatchParams::apply(MANAGER).force();
    for bed in &garden.spec.beds {
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": bed, "labels": {"garden": garden.name_any()}, "ownerReferences": [garden.controller_owner_ref(&())]},
            "data": {"seed": "rose"},
        });
        maps.patch(bed, &params, &Patch::Apply(map)).await?;
    }
    let ours = ListParams::default().labels(&format!("garden={}", garden.name_any()));
    for map in maps.list(&ours).await? {
        if !garden.spec.beds.contains(&map.name_any()) {
            maps.delete(&map.name_any(), &DeleteParams::default()).await?;
        }
    }
    let status = GardenStatus {
        observed_generation: garden.metadata.generation.unwrap_or_default(),
        beds: garden.spec.beds.len(),
    };
    let gardens: Api<Garden> = Api::default_namespaced(client.clone());
    let patch = json!({"apiVersion": "example.com/v1", "kind": "Garden", "status": status});
    gardens
        .patch_status(&garden.name_any(), &params, &Patch::Apply(patch))
        .await?;
    Ok(Action::await_change())
}

/// Leaves a stone, to be seen that it came to this.
async fn bury(garden: &Garden, client: &kube::Client) -> Result<Action, kube::Error> {
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let stone = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("{}-was-here", garden.name_any())}});
    let name = format!("{}-was-here", garden.name_any());
    maps.patch(&name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(stone))
        .await?;
    Ok(Action::await_change())
}

/// Watches the gardens' maps until they are as wanted.
async fn until(maps: &Api<ConfigMap>, what: &str, wanted: impl Fn(&[ConfigMap]) -> bool) {
    let events = watcher(maps.clone(), watcher::Config::default()).default_backoff();
    let mut events = std::pin::pin!(events.touched_objects());
    soon(what, async {
        loop {
            let now = maps.list(&ListParams::default().labels("garden")).await.unwrap().items;
            if wanted(&now) {
                return;
            }
            events.try_next().await.unwrap();
        }
    })
    .await;
}

fn names(maps: &[ConfigMap]) -> BTreeSet<String> {
    maps.iter().map(ResourceExt::name_any).collect()
}

pub async fn keeps_its_children_and_cleans_up(world: &World) {
    let client = &world.client;
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions
        .create(&PostParams::default(), &Garden::crd())
        .await
        .unwrap();
    let established = await_condition(definitions, Garden::crd_name(), conditions::is_crd_established());
    soon("the definition", established).await.unwrap();
    let gardens: Api<Garden> = Api::default_namespaced(client.clone());
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let controller = Controller::new(gardens.clone(), watcher::Config::default())
        .owns(maps.clone(), watcher::Config::default())
        .run(
            reconcile,
            |_, error, _| {
                // Two writers in a row may be in each other's way; it comes again.
                tracing::warn!(%error, "the gardener stumbled");
                Action::requeue(Duration::from_millis(50))
            },
            Arc::new(client.clone()),
        )
        .for_each(|_| std::future::ready(()));
    let controller = tokio::spawn(controller);

    let garden = Garden::new(
        "eden",
        GardenSpec {
            beds: vec!["north".into(), "south".into()],
        },
    );
    gardens.create(&PostParams::default(), &garden).await.unwrap();
    until(&maps, "children", |maps| {
        names(maps) == ["north".into(), "south".into()].into()
    })
    .await;
    let told = |wanted: GardenStatus| {
        move |garden: Option<&Garden>| garden.is_some_and(|garden| garden.status.as_ref() == Some(&wanted))
    };
    let status = await_condition(
        gardens.clone(),
        "eden",
        told(GardenStatus {
            observed_generation: 1,
            beds: 2,
        }),
    );
    soon("a status", status).await.unwrap();

    // A child that is taken comes back.
    let north = maps.get("north").await.unwrap();
    maps.delete("north", &DeleteParams::default()).await.unwrap();
    until(&maps, "the child again", |maps| {
        maps.iter()
            .any(|map| map.name_any() == "north" && map.uid() != north.uid())
    })
    .await;
    // One that is spoilt is mended.
    let weed = Patch::Merge(json!({"data": {"seed": "thistle"}}));
    maps.patch("south", &PatchParams::default(), &weed).await.unwrap();
    let rose = |map: &ConfigMap| map.data.as_ref().is_some_and(|data| data["seed"] == "rose");
    until(&maps, "roses", |maps| maps.iter().all(rose)).await;
    // One that is not wanted any more goes.
    let smaller = Patch::Merge(json!({"spec": {"beds": ["south"]}}));
    gardens.patch("eden", &PatchParams::default(), &smaller).await.unwrap();
    until(&maps, "one child", |maps| names(maps) == ["south".into()].into()).await;
    let status = await_condition(
        gardens.clone(),
        "eden",
        told(GardenStatus {
            observed_generation: 2,
            beds: 1,
        }),
    );
    soon("the next status", status).await.unwrap();

    // In the end its finalizer runs, and the garbage collector takes the rest.
    let uid = gardens.get("eden").await.unwrap().uid().unwrap();
    gardens.delete("eden", &DeleteParams::default()).await.unwrap();
    soon(
        "the end",
        await_condition(gardens.clone(), "eden", conditions::is_deleted(&uid)),
    )
    .await
    .unwrap();
    assert!(
        maps.get_opt("eden-was-here").await.unwrap().is_some(),
        "its finalizer had no part in its end"
    );
    until(&maps, "no children", <[ConfigMap]>::is_empty).await;
    controller.abort();
}

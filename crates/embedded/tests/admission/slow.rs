//! What happens to a write while a webhook thinks about it: namespaces and definitions come and go meanwhile.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::BoxFuture;
use http::Method;
use serde_json::{Value, json};
use usher_embedded::Cluster;

use crate::hooks::map;
use crate::server::answer;
use crate::world::{Answer, World};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

/// A world with a webhook that does something before it says yes to a write of this resource.
async fn meanwhile<F>(resource: &str, operation: &str, act: impl Fn(World) -> F + Send + Sync + 'static) -> World
where
    F: Future<Output = ()> + Send + 'static,
{
    let world = World::new();
    let (cluster, act): (Cluster, _) = (world.cluster().clone(), Arc::new(act));
    world
        .cluster()
        .handle_webhook("https://in.process/slow", move |review| {
            let (world, act) = (World::of(cluster.clone()), act.clone());
            async move {
                act(world).await;
                answer(&review, json!({"allowed": true}))
            }
        });
    let rules = json!([{"apiGroups": ["*"], "apiVersions": ["*"], "resources": [resource], "operations": [operation]}]);
    world.hook("Validating", "slow", json!({"rules": rules})).await.ok();
    world
}

async fn until_gone(world: &World, path: &str) {
    while world.get(path).await.code != 404 {
        tokio::task::yield_now().await;
    }
}

fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

fn definition(fields: &[&str]) -> Value {
    let fields: serde_json::Map<String, Value> = fields
        .iter()
        .map(|field| ((*field).to_owned(), json!({"type": "string"})))
        .collect();
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
                {"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}}}}]}})
}

fn widget(name: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name},
        "spec": {"a": "1", "b": "2"}})
}

#[tokio::test]
async fn o9_nothing_is_made_in_a_namespace_that_went_while_a_webhook_was_asked() {
    let world = meanwhile("configmaps", "CREATE", |world| async move {
        world.delete("/api/v1/namespaces/short").await.ok();
        until_gone(&world, "/api/v1/namespaces/short").await;
    })
    .await;
    world.post("/api/v1/namespaces", namespace("short")).await.ok();
    let maps = "/api/v1/namespaces/short/configmaps";
    world
        .post(maps, map("late"))
        .await
        .refused(404, "namespaces \"short\" not found");
    // Made again, it is empty.
    world.post("/api/v1/namespaces", namespace("short")).await.ok();
    assert_eq!(world.get(&format!("{maps}/late")).await.code, 404);
}

#[tokio::test]
async fn a_namespace_that_merely_changed_meanwhile_takes_the_object() {
    let world = meanwhile("configmaps", "CREATE", |world| async move {
        let label = json!({"metadata": {"labels": {"moved": "yes"}}});
        world.merge("/api/v1/namespaces/default", label).await.ok();
    })
    .await;
    let made = world.post("/api/v1/namespaces/default/configmaps", map("m")).await;
    assert_eq!(made.code, 201, "{made:?}");
}

#[tokio::test]
async fn d6_nothing_is_made_of_a_definition_that_went_while_a_webhook_was_asked() {
    let world = meanwhile("widgets", "CREATE", |world| async move {
        world.delete(DEFINITION).await.ok();
        until_gone(&world, DEFINITION).await;
    })
    .await;
    world.post(DEFINITIONS, definition(&["a", "b"])).await.ok();
    world
        .post(WIDGETS, widget("late"))
        .await
        .refused(404, "the server could not find the requested resource");
    world.post(DEFINITIONS, definition(&["a", "b"])).await.ok();
    let list = world.get(WIDGETS).await.ok();
    assert_eq!(list["items"], json!([]));
}

#[tokio::test]
async fn d2_an_object_is_stored_as_the_definition_says_by_then() {
    let narrower = |world: World| async move {
        world
            .merge(DEFINITION, json!({"spec": definition(&["a"])["spec"]}))
            .await
            .ok();
    };
    let world = meanwhile("widgets", "CREATE", narrower).await;
    world.post(DEFINITIONS, definition(&["a", "b"])).await.ok();
    let made = world.post(WIDGETS, widget("w")).await.ok();
    assert_eq!(made["spec"], json!({"a": "1"}));
    let read = world.get(&format!("{WIDGETS}/w")).await.ok();
    assert_eq!(read["spec"], json!({"a": "1"}));
    // A change that was made by the old schemas is made anew by whoever made it.
    let world = meanwhile("widgets", "UPDATE", narrower).await;
    world.post(DEFINITIONS, definition(&["a", "b"])).await.ok();
    world.post(WIDGETS, widget("w")).await.ok();
    let change = json!({"spec": {"b": "3"}});
    let changed = world.merge(&format!("{WIDGETS}/w"), change.clone()).await;
    assert_eq!((changed.code, &changed.body["reason"]), (409, &json!("Conflict")));
    let changed = world.merge(&format!("{WIDGETS}/w"), change).await.ok();
    assert_eq!(changed["spec"], json!({"a": "1"}));
}

/// Once: what is done here is asked about, too.
fn only_once<F>(act: impl Fn(World) -> F + Send + Sync + 'static) -> impl Fn(World) -> BoxFuture<'static, ()>
where
    F: Future<Output = ()> + Send + 'static,
{
    let is_done = AtomicBool::new(false);
    move |world| match is_done.swap(true, Ordering::SeqCst) {
        false => Box::pin(act(world)),
        true => Box::pin(async {}),
    }
}

async fn apply(world: &World, path: &str, manager: &str, object: Value) -> Answer {
    let path = format!("{path}?fieldManager={manager}");
    world
        .send(Method::PATCH, &path, "application/apply-patch+yaml", &object)
        .await
}

#[tokio::test]
async fn o17_two_who_apply_the_same_new_object_both_get_their_fields() {
    let path = "/api/v1/namespaces/default/configmaps/m";
    let object =
        |field: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {field: "1"}});
    let world = meanwhile(
        "configmaps",
        "CREATE",
        only_once(move |world| async move {
            apply(&world, path, "faster", object("a")).await.ok();
        }),
    )
    .await;
    let made = apply(&world, path, "slower", object("b")).await;
    assert_eq!(made.code, 200, "{made:?}");
    let now = world.get(path).await.ok();
    assert_eq!(now["data"], json!({"a": "1", "b": "1"}));
    assert_eq!(now["metadata"]["managedFields"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn o10_two_who_put_the_same_new_object_both_write_it() {
    let path = "/api/v1/namespaces/default/events/e";
    let object = |message: &str| {
        json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "default"}, "message": message,
            "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"}})
    };
    let world = meanwhile(
        "events",
        "CREATE",
        only_once(move |world| async move {
            assert_eq!(world.put(path, object("faster")).await.code, 201);
        }),
    )
    .await;
    let made = world.put(path, object("slower")).await;
    assert_eq!(made.code, 200, "{made:?}");
    assert_eq!(world.get(path).await.ok()["message"], "slower");
}

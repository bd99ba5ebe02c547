//! Whom a Service leads to (C6): one Endpoints, and EndpointSlices of at most a hundred.
//!
//! - [`members`]: which pods belong to a Service, under which address and ports. [`subsets`]: those as an Endpoints object.
//!   [`slices`]: what has to change for the slices to say the same. All pure.
//! - [`follow`]: which Services a change is about. [`times`]: since when a change was waiting to be written.
//!
//! The two controllers differ in what they write and in nothing else. A change of a Service is written at once, one of its
//! pods after [`follow::BATCH`]: a thousand pods that become ready one by one are not a thousand writes.

mod fnv;
mod follow;
mod members;
mod slices;
mod subsets;
mod times;

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Endpoints as EndpointsObject, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;

use super::hand::{changed, is_closing, name_of, reference, uid_of};
use super::{Census, Control, Hand, Next, Wishes};
use crate::fault::Fault;
use crate::store::{Entry, LogEntry};

use times::Times;

/// Since when a change was waiting to be written.
const TRIGGER: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// Writes Endpoints. Keys are `namespace/name` of Services.
#[derive(Debug, Default)]
pub(super) struct Endpoints {
    times: Times,
}

/// Writes EndpointSlices. Keys are `namespace/name` of Services.
#[derive(Debug, Default)]
pub(super) struct EndpointSlices {
    times: Times,
}

/// The Service and its pods, if it is one that gets endpoints from us.
fn subject(hand: &Hand, namespace: &str, name: &str) -> Option<(Arc<Service>, Vec<Arc<Pod>>)> {
    let service = hand.mirror.services.get(Some(namespace), name)?;
    let selector = members::selector(&service)?;
    let pods = hand.mirror.pods.list(Some(namespace));
    let pods = pods.into_iter().filter(|pod| members::selects(selector, pod)).collect();
    Some((service, pods))
}

impl Control for Endpoints {
    fn begin(&mut self, hand: &Hand, _: &[Entry], _: &Census, wishes: &mut Wishes) {
        self.times = Times::default();
        follow::begin(hand, wishes);
        // Some may have outlived their Service.
        for endpoints in hand.mirror.endpoints.list(None) {
            wishes.sync(super::hand::place(&endpoints.metadata));
        }
    }

    fn see(&mut self, hand: &Hand, line: &LogEntry, _: &Census, wishes: &mut Wishes) {
        match (line.key.group(), line.key.resource()) {
            ("", "endpoints") if line.entry().is_none() => {
                wishes.sync(format!(
                    "{}/{}",
                    line.key.namespace().unwrap_or_default(),
                    line.key.name()
                ));
            }
            _ => follow::see(hand, line, wishes),
        }
    }

    fn sync<'a>(&'a mut self, hand: &'a Hand, key: &'a str, _: &'a mut Wishes) -> BoxFuture<'a, Result<Next, Fault>> {
        async move {
            let Some((namespace, name)) = key.split_once('/') else {
                return Ok(Next::Done);
            };
            let found = hand.mirror.endpoints.get(Some(namespace), name);
            if hand.mirror.services.get(Some(namespace), name).is_none() {
                self.times.forget(key);
                if let Some(found) = found.filter(|found| !subsets::is_election(found)) {
                    let target = hand.target_of::<EndpointsObject>(Some(namespace), name)?;
                    hand.remove(&target, uid_of(&found.metadata), None).await?;
                }
                return Ok(Next::Done);
            }
            let Some((service, pods)) = subject(hand, namespace, name) else {
                return Ok(Next::Done);
            };
            let trigger = self.times.next(key, &service, &pods);
            let subsets = subsets::of(&service, &pods);
            if found
                .as_ref()
                .is_some_and(|found| subsets::is_right(found, &service, &subsets))
            {
                return Ok(Next::Done);
            }
            let wanted = subsets::endpoints(&service, found.as_deref(), subsets, trigger);
            let (outcome, reason, verb) = match found {
                None => (
                    hand.make(Some(namespace), &wanted).await,
                    "FailedToCreateEndpoint",
                    "create endpoint for service",
                ),
                Some(_) => (
                    hand.put(Some(namespace), name, "", &wanted).await,
                    "FailedToUpdateEndpoint",
                    "update endpoint",
                ),
            };
            match outcome {
                Err(fault) if is_closing(&fault) || matches!(fault.code, 404 | 409) => {}
                Err(fault) => {
                    let message = format!("Failed to {verb} {key}: {fault}");
                    let about = reference(&*service);
                    hand.say("endpoint-controller", about, "Warning", reason, message).await;
                    return Err(fault);
                }
                Ok(_) => {}
            }
            Ok(Next::Done)
        }
        .boxed()
    }
}

impl Control for EndpointSlices {
    fn begin(&mut self, hand: &Hand, _: &[Entry], _: &Census, wishes: &mut Wishes) {
        self.times = Times::default();
        follow::begin(hand, wishes);
    }

    fn see(&mut self, hand: &Hand, line: &LogEntry, _: &Census, wishes: &mut Wishes) {
        match (line.key.group(), line.key.resource()) {
            ("discovery.k8s.io", "endpointslices") => {
                if let Some(service) = slices::service_of_line(line) {
                    wishes.sync(service);
                }
            }
            _ => follow::see(hand, line, wishes),
        }
    }

    fn sync<'a>(&'a mut self, hand: &'a Hand, key: &'a str, _: &'a mut Wishes) -> BoxFuture<'a, Result<Next, Fault>> {
        async move {
            let Some((namespace, name)) = key.split_once('/') else {
                return Ok(Next::Done);
            };
            if hand.mirror.services.get(Some(namespace), name).is_none() {
                // The garbage collector takes the slices.
                self.times.forget(key);
                return Ok(Next::Done);
            }
            let Some((service, pods)) = subject(hand, namespace, name) else {
                return Ok(Next::Done);
            };
            let trigger = self.times.next(key, &service, &pods);
            let existing: Vec<Arc<EndpointSlice>> = hand
                .mirror
                .slices
                .list(Some(namespace))
                .into_iter()
                .filter(|slice| slices::is_ours(slice, name))
                .collect();
            let node = |name: &str| hand.mirror.nodes.get(None, name);
            let mut plan = slices::plan(&service, &pods, node, &existing);
            if plan.is_empty() {
                return Ok(Next::Done);
            }
            plan.mark(trigger);
            if let Err(fault) = carry_out(hand, namespace, &service, plan).await {
                let message = format!("Error updating Endpoint Slices for Service {key}: {fault}");
                let reason = "FailedToUpdateEndpointSlices";
                let about = reference(&*service);
                hand.say("endpoint-slice-controller", about, "Warning", reason, message)
                    .await;
                return Err(fault);
            }
            Ok(Next::Done)
        }
        .boxed()
    }
}

async fn carry_out(hand: &Hand, namespace: &str, service: &Service, plan: slices::Plan) -> Result<(), Fault> {
    if service.metadata.deletion_timestamp.is_none() {
        for slice in &plan.create {
            match hand.make(Some(namespace), slice).await {
                Err(fault) if is_closing(&fault) => return Ok(()),
                outcome => outcome.map(|_| ())?,
            }
        }
    }
    for slice in &plan.update {
        changed(hand.put(Some(namespace), name_of(&slice.metadata), "", slice).await)?;
    }
    for slice in &plan.delete {
        let target = hand.target_of::<EndpointSlice>(Some(namespace), name_of(&slice.metadata))?;
        hand.remove(&target, uid_of(&slice.metadata), None).await?;
    }
    Ok(())
}

//! Amounts of resources: what pods ask for, what nodes have.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;

use crate::kinds::quantity::Quantity;

/// What a container that asks for nothing is taken to use when nodes are compared: the reference's numbers.
const ASSUMED: Amounts = Amounts {
    cpu: 100,
    memory: 200 * 1024 * 1024,
    ephemeral: 0,
    others: BTreeMap::new(),
};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Amounts {
    /// In thousandths.
    pub(crate) cpu: i64,
    /// In bytes.
    pub(crate) memory: i64,
    pub(crate) ephemeral: i64,
    /// Extended resources and huge pages, by name.
    pub(crate) others: BTreeMap<String, i64>,
}

/// A resource of which a node has too little.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Short {
    pub(crate) resource: String,
    /// More is asked for than the whole node has: no pod that goes would help.
    pub(crate) for_ever: bool,
}

fn fitting(amount: i128) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}

impl Amounts {
    pub(crate) fn of(list: Option<&BTreeMap<String, Text>>) -> Self {
        let mut amounts = Self::default();
        for (name, text) in list.into_iter().flatten() {
            // The API refused what is no amount.
            let Ok(amount) = Quantity::parse(&text.0) else { continue };
            match name.as_str() {
                "cpu" => amounts.cpu = fitting(amount.milli()),
                "memory" => amounts.memory = fitting(amount.units()),
                "ephemeral-storage" => amounts.ephemeral = fitting(amount.units()),
                "pods" => {}
                _ => {
                    amounts.others.insert(name.clone(), fitting(amount.units()));
                }
            }
        }
        amounts
    }

    /// What a pod takes of its node: its containers together, or more while it starts.
    pub(crate) fn of_pod(spec: &PodSpec) -> Self {
        Self::needed(spec, &Self::default())
    }

    /// The same, as nodes are compared by it.
    pub(crate) fn compared(spec: &PodSpec) -> Self {
        Self::needed(spec, &ASSUMED)
    }

    fn needed(spec: &PodSpec, assumed: &Self) -> Self {
        let of = |container: &Container| {
            let requests = container.resources.as_ref().and_then(|all| all.requests.as_ref());
            let mut amounts = Self::of(requests);
            let asks = |name: &str| requests.is_some_and(|requests| requests.contains_key(name));
            if !asks("cpu") {
                amounts.cpu = assumed.cpu;
            }
            if !asks("memory") {
                amounts.memory = assumed.memory;
            }
            amounts
        };
        let mut running = Self::default();
        for container in &spec.containers {
            running.add(&of(container));
        }
        let (mut sidecars, mut starting) = (Self::default(), Self::default());
        for container in spec.init_containers.iter().flatten() {
            let own = of(container);
            let mut together = sidecars.clone();
            together.add(&own);
            starting.raise_to(&together);
            if container.restart_policy.as_deref() == Some("Always") {
                sidecars.add(&own);
                running.add(&own);
            }
        }
        running.raise_to(&starting);
        if let Some(whole) = spec.resources.as_ref().and_then(|all| all.requests.as_ref()) {
            let said = Self::of(Some(whole));
            if whole.contains_key("cpu") {
                running.cpu = said.cpu;
            }
            if whole.contains_key("memory") {
                running.memory = said.memory;
            }
        }
        running.add(&Self::of(spec.overhead.as_ref()));
        running
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.cpu = self.cpu.saturating_add(other.cpu);
        self.memory = self.memory.saturating_add(other.memory);
        self.ephemeral = self.ephemeral.saturating_add(other.ephemeral);
        for (name, amount) in &other.others {
            let own = self.others.entry(name.clone()).or_default();
            *own = own.saturating_add(*amount);
        }
    }

    pub(crate) fn take(&mut self, other: &Self) {
        self.cpu = self.cpu.saturating_sub(other.cpu);
        self.memory = self.memory.saturating_sub(other.memory);
        self.ephemeral = self.ephemeral.saturating_sub(other.ephemeral);
        for (name, amount) in &other.others {
            let own = self.others.entry(name.clone()).or_default();
            *own = own.saturating_sub(*amount);
        }
    }

    fn raise_to(&mut self, other: &Self) {
        self.cpu = self.cpu.max(other.cpu);
        self.memory = self.memory.max(other.memory);
        self.ephemeral = self.ephemeral.max(other.ephemeral);
        for (name, amount) in &other.others {
            let own = self.others.entry(name.clone()).or_default();
            *own = (*own).max(*amount);
        }
    }

    fn other(&self, name: &str) -> i64 {
        self.others.get(name).copied().unwrap_or_default()
    }

    /// What of this request a node lacks that has so much and gave so much away.
    pub(crate) fn lacking(&self, has: &Self, used: &Self) -> Vec<Short> {
        let mut lacking = Vec::new();
        let mut look = |resource: &str, wanted: i64, has: i64, used: i64| {
            if wanted > 0 && wanted > has.saturating_sub(used) {
                lacking.push(Short {
                    resource: resource.to_owned(),
                    for_ever: wanted > has,
                });
            }
        };
        look("cpu", self.cpu, has.cpu, used.cpu);
        look("memory", self.memory, has.memory, used.memory);
        look("ephemeral-storage", self.ephemeral, has.ephemeral, used.ephemeral);
        for (name, wanted) in &self.others {
            look(name, *wanted, has.other(name), used.other(name));
        }
        lacking
    }

    pub(crate) fn fits(&self, has: &Self, used: &Self) -> bool {
        let fits = |wanted: i64, has: i64, used: i64| wanted <= 0 || wanted <= has.saturating_sub(used);
        fits(self.cpu, has.cpu, used.cpu)
            && fits(self.memory, has.memory, used.memory)
            && fits(self.ephemeral, has.ephemeral, used.ephemeral)
            && self
                .others
                .iter()
                .all(|(name, wanted)| fits(*wanted, has.other(name), used.other(name)))
    }

    /// How many such requests fit side by side, at most `most`.
    pub(crate) fn times_in(&self, has: &Self, used: &Self, most: usize) -> usize {
        let mut count = most;
        let mut look = |wanted: i64, has: i64, used: i64| {
            if wanted > 0 {
                let fits = has.saturating_sub(used).max(0) / wanted;
                count = count.min(usize::try_from(fits).unwrap_or(usize::MAX));
            }
        };
        look(self.cpu, has.cpu, used.cpu);
        look(self.memory, has.memory, used.memory);
        look(self.ephemeral, has.ephemeral, used.ephemeral);
        for (name, wanted) in &self.others {
            look(*wanted, has.other(name), used.other(name));
        }
        count
    }

    /// How large it is beside a whole, in thousandths of the resource that it takes most of.
    pub(crate) fn share_of(&self, whole: &Self) -> i64 {
        let share = |wanted: i64, whole: i64| match whole {
            0 => 0,
            whole => fitting(i128::from(wanted) * 1_000 / i128::from(whole)),
        };
        let others = self
            .others
            .iter()
            .map(|(name, wanted)| share(*wanted, whole.other(name)));
        share(self.cpu, whole.cpu)
            .max(share(self.memory, whole.memory))
            .max(others.max().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(value: serde_json::Value) -> PodSpec {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn k1_a_pod_takes_its_containers_together_or_more_while_it_starts() {
        let asks = |cpu: &str| json!({"requests": {"cpu": cpu, "memory": "1Mi"}});
        let mut pod =
            json!({"containers": [{"name": "a", "resources": asks("1")}, {"name": "b", "resources": asks("500m")}]});
        assert_eq!(Amounts::of_pod(&spec(pod.clone())).cpu, 1_500);
        pod["initContainers"] = json!([{"name": "i", "resources": asks("4")}]);
        assert_eq!(Amounts::of_pod(&spec(pod.clone())).cpu, 4_000);
        pod["initContainers"] = json!([{"name": "s", "restartPolicy": "Always", "resources": asks("1")}, {"name": "i", "resources": asks("2")}]);
        assert_eq!(Amounts::of_pod(&spec(pod.clone())).cpu, 3_000);
        pod["overhead"] = json!({"cpu": "250m"});
        assert_eq!(Amounts::of_pod(&spec(pod)).cpu, 3_250);
    }

    #[test]
    fn k1_who_asks_for_nothing_fits_everywhere_and_is_still_compared() {
        let pod = spec(json!({"containers": [{"name": "a"}]}));
        assert!(Amounts::of_pod(&pod).fits(&Amounts::default(), &Amounts::default()));
        assert_eq!(Amounts::compared(&pod).cpu, 100);
    }
}

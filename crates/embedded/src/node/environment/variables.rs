//! A container's variables, in the reference's order: envFrom in turn, then env in turn over it, then what tells of
//! Services where nothing has that name yet.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Container, EnvFromSource, EnvVarSource, Pod, Secret};

use super::{ConfigError, Facts, Objects, env_file, expansion, fields, services};

/// What the pod says of a container's variables; the image's come under these.
///
/// # Errors
/// The kubelet's sentence on the object, key or field that is not there.
pub fn variables(
    pod: &Pod,
    container: &Container,
    facts: &Facts,
    objects: &dyn Objects,
) -> Result<BTreeMap<String, String>, ConfigError> {
    let links = services::variables(pod, &objects.services());
    let mut own: BTreeMap<String, String> = BTreeMap::new();
    for from in container.env_from.iter().flatten() {
        let prefix = from.prefix.as_deref().unwrap_or_default();
        for (key, value) in all_of(from, objects)? {
            own.insert(format!("{prefix}{key}"), value);
        }
    }
    let sources = Sources {
        pod,
        container,
        facts,
        objects,
    };
    for variable in container.env.iter().flatten() {
        let written = variable.value.as_deref().unwrap_or_default();
        let value = match &variable.value_from {
            Some(from) if written.is_empty() => match sources.value(from)? {
                Some(value) => value,
                // Optional, and not there: as if the variable were not written.
                None => continue,
            },
            _ => expansion::expand_with(written, |name| {
                own.get(name)
                    .or_else(|| links.get(name))
                    .cloned()
                    .unwrap_or_else(|| format!("$({name})"))
            }),
        };
        own.insert(variable.name.clone(), value);
    }
    for (name, value) in links {
        own.entry(name).or_insert(value);
    }
    Ok(own)
}

fn all_of(from: &EnvFromSource, objects: &dyn Objects) -> Result<BTreeMap<String, String>, ConfigError> {
    if let Some(source) = &from.config_map_ref {
        let found = config_map(objects, &source.name, source.optional)?;
        return Ok(found.and_then(|found| found.data).unwrap_or_default());
    }
    if let Some(source) = &from.secret_ref {
        let found = secret(objects, &source.name, source.optional)?;
        let data = found.and_then(|found| found.data).unwrap_or_default();
        return Ok(data.into_iter().map(|(key, value)| (key, text(&value.0))).collect());
    }
    Ok(BTreeMap::new())
}

fn config_map(objects: &dyn Objects, name: &str, optional: Option<bool>) -> Result<Option<ConfigMap>, ConfigError> {
    match objects.config_map(name) {
        None if optional != Some(true) => Err(ConfigError::NoConfigMap(name.to_owned())),
        found => Ok(found),
    }
}

fn secret(objects: &dyn Objects, name: &str, optional: Option<bool>) -> Result<Option<Secret>, ConfigError> {
    match objects.secret(name) {
        None if optional != Some(true) => Err(ConfigError::NoSecret(name.to_owned())),
        found => Ok(found),
    }
}

/// Bytes that are no text cannot be a variable's value; they are shown as such.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Where valueFrom looks.
struct Sources<'a> {
    pod: &'a Pod,
    container: &'a Container,
    facts: &'a Facts,
    objects: &'a dyn Objects,
}

impl Sources<'_> {
    /// `None`: not there, and need not be.
    fn value(&self, from: &EnvVarSource) -> Result<Option<String>, ConfigError> {
        if let Some(source) = &from.field_ref {
            return fields::field(self.pod, self.facts, &source.field_path).map(Some);
        }
        if let Some(source) = &from.resource_field_ref {
            return fields::resource(self.pod, Some(self.container), self.facts, source).map(Some);
        }
        if let Some(source) = &from.config_map_key_ref {
            let Some(found) = config_map(self.objects, &source.name, source.optional)? else {
                return Ok(None);
            };
            let value = found.data.and_then(|mut data| data.remove(&source.key));
            return self.or_missing(value, "ConfigMap", &source.name, &source.key, source.optional);
        }
        if let Some(source) = &from.secret_key_ref {
            let Some(found) = secret(self.objects, &source.name, source.optional)? else {
                return Ok(None);
            };
            let value = found.data.and_then(|mut data| data.remove(&source.key));
            let value = value.map(|value| text(&value.0));
            return self.or_missing(value, "Secret", &source.name, &source.key, source.optional);
        }
        if let Some(source) = &from.file_key_ref {
            return env_file::value(self.pod, &self.facts.volumes, source);
        }
        Ok(Some(String::new()))
    }

    fn or_missing(
        &self,
        value: Option<String>,
        kind: &'static str,
        name: &str,
        key: &str,
        optional: Option<bool>,
    ) -> Result<Option<String>, ConfigError> {
        if value.is_some() || optional == Some(true) {
            return Ok(value);
        }
        Err(ConfigError::NoKey {
            kind,
            namespace: self.pod.metadata.namespace.clone().unwrap_or_default(),
            name: name.to_owned(),
            key: key.to_owned(),
        })
    }
}

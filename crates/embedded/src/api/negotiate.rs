//! What a client can read, and what it sent (A5, A6).

use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE};

use crate::api::table::MetaVersion;
use crate::fault::Fault;

/// How an answer is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Json,
    /// JSON with indents.
    Pretty,
    Yaml,
}

impl Format {
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Json | Self::Pretty => "application/json",
            Self::Yaml => "application/yaml",
        }
    }
}

/// What of an object is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    Object,
    /// `PartialObjectMetadata(List)`, by version.
    Metadata(MetaVersion),
    Table(MetaVersion),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Representation {
    pub(crate) format: Format,
    pub(crate) shape: Shape,
}

const ACCEPTED: &str = "only the following media types are accepted: application/json, application/yaml";
const AVAILABLE: &str = "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/json;stream=watch";

/// One media range of an `Accept` header with its parameters.
#[derive(Debug)]
struct Clause<'a> {
    media: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
}

impl<'a> Clause<'a> {
    fn all(header: &'a str) -> impl Iterator<Item = Self> {
        header.split(',').map(|clause| {
            let mut parts = clause.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default();
            let parameters = parts.filter_map(|part| part.split_once('=')).collect();
            Self { media, parameters }
        })
    }

    fn parameter(&self, name: &str) -> &'a str {
        self.parameters
            .iter()
            .find(|(key, _)| *key == name)
            .map(|(_, value)| *value)
            .unwrap_or_default()
    }
}

pub(crate) fn accept_header(headers: &HeaderMap) -> &str {
    headers
        .get(ACCEPT)
        .and_then(|value| value.to_str().ok())
        .unwrap_or("*/*")
}

/// What is answered. `allows` says which shapes this answer can take.
pub(crate) fn representation(headers: &HeaderMap, pretty: bool, transforms: bool) -> Result<Representation, Fault> {
    let json = if pretty { Format::Pretty } else { Format::Json };
    let mut is_readable = false;
    for clause in Clause::all(accept_header(headers)) {
        let format = match clause.media {
            "" | "*/*" | "application/*" | "application/json" => json,
            "application/yaml" => Format::Yaml,
            _ => continue,
        };
        is_readable = true;
        let version = MetaVersion::parse(clause.parameter("v"));
        let shape = match (clause.parameter("as"), clause.parameter("g"), version) {
            ("", _, _) => Shape::Object,
            ("Table", "meta.k8s.io", Some(version)) if transforms => Shape::Table(version),
            ("PartialObjectMetadata" | "PartialObjectMetadataList", "meta.k8s.io", Some(version)) if transforms => {
                Shape::Metadata(version)
            }
            // Another clause may do.
            _ => continue,
        };
        return Ok(Representation { format, shape });
    }
    if is_readable {
        return Err(Fault::new(406, "NotAcceptable", ACCEPTED));
    }
    let mut fault = Fault::new(406, "NotAcceptable", AVAILABLE);
    fault.details = Some(serde_json::Map::new());
    Err(fault)
}

/// Which aggregated discovery is wanted: `v2` or `v2beta1`; `None` for the older answers.
pub(crate) fn aggregated(headers: &HeaderMap) -> Option<&'static str> {
    for clause in Clause::all(accept_header(headers)) {
        if clause.media != "application/json" {
            continue;
        }
        match (clause.parameter("g"), clause.parameter("v"), clause.parameter("as")) {
            ("apidiscovery.k8s.io", "v2", "APIGroupDiscoveryList") => return Some("v2"),
            ("apidiscovery.k8s.io", "v2beta1", "APIGroupDiscoveryList") => return Some("v2beta1"),
            (_, _, "") => return None,
            _ => {}
        }
    }
    None
}

/// The media type of the body, without parameters; JSON if none is given.
pub(crate) fn content_type(headers: &HeaderMap) -> &str {
    let text = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    match text.split(';').next().map(str::trim) {
        None | Some("") => "application/json",
        Some(media) => media,
    }
}

/// A body of a kind that is not read here.
pub(crate) fn unsupported(accepted: &[&str]) -> Fault {
    Fault::new(
        415,
        "UnsupportedMediaType",
        format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(accept: &str) -> Result<Representation, Fault> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, accept.parse().unwrap());
        representation(&headers, false, true)
    }

    #[test]
    fn a6_the_first_clause_that_can_be_met_is() {
        for (accept, shape) in [
            ("application/json", Shape::Object),
            ("*/*", Shape::Object),
            (
                "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
                Shape::Table(MetaVersion::V1),
            ),
            (
                "application/json;as=Table;v=v7;g=meta.k8s.io, application/json",
                Shape::Object,
            ),
            (
                "application/json;as=PartialObjectMetadataList;v=v1beta1;g=meta.k8s.io",
                Shape::Metadata(MetaVersion::V1Beta1),
            ),
            ("application/vnd.kubernetes.protobuf,application/json", Shape::Object),
        ] {
            assert_eq!(asked(accept).unwrap().shape, shape, "{accept}");
        }
    }

    #[test]
    fn a5_protobuf_or_cbor_alone_is_not_acceptable() {
        for accept in ["application/vnd.kubernetes.protobuf", "application/cbor"] {
            assert_eq!(asked(accept).unwrap_err().code, 406, "{accept}");
        }
    }
}

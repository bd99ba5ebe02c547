//! From a path to what it is about.

/// What a path names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Route<'a> {
    /// `/healthz`, `/livez`, `/readyz`.
    Health(&'a str),
    Version,
    Metrics,
    /// `/`, `/api`, `/apis`, `/api/v1`, `/apis/G`, `/apis/G/V`.
    Root,
    CoreVersions,
    Groups,
    Group(&'a str),
    GroupVersion {
        group: &'a str,
        version: &'a str,
    },
    OpenApiIndex,
    /// `/openapi/v3/apis/apps/v1`: the part behind `v3/`.
    OpenApi(&'a str),
    Resource(Place<'a>),
    /// `/usher/nodes/NAME/stop`: the part behind `/usher/`. No part of Kubernetes: this machine's nodes and images.
    Machines(&'a str),
    Unknown,
}

/// A collection, an object, or a subresource of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place<'a> {
    pub(crate) group: &'a str,
    pub(crate) version: &'a str,
    pub(crate) namespace: Option<&'a str>,
    pub(crate) resource: &'a str,
    /// Empty for a collection.
    pub(crate) name: &'a str,
    /// Empty for the object itself.
    pub(crate) subresource: &'a str,
    /// The old way to ask for a watch: `/api/v1/watch/…`.
    pub(crate) is_watch: bool,
}

impl<'a> Route<'a> {
    pub(crate) fn parse(path: &'a str) -> Self {
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        // A slash at the end adds nothing.
        let parts = match parts.as_slice() {
            [rest @ .., ""] if !rest.is_empty() => rest,
            all => all,
        };
        match parts {
            [] | [""] => Self::Root,
            ["healthz" | "livez" | "readyz", ..] => Self::Health(path),
            ["version"] => Self::Version,
            ["usher", _, ..] => Self::Machines(path.trim_start_matches("/usher/").trim_end_matches('/')),
            ["metrics"] => Self::Metrics,
            ["openapi", "v3"] => Self::OpenApiIndex,
            ["openapi", "v3", ..] => Self::OpenApi(path.trim_start_matches("/openapi/v3/").trim_end_matches('/')),
            ["api"] => Self::CoreVersions,
            ["apis"] => Self::Groups,
            ["apis", group] => Self::Group(group),
            ["api", version] => Self::GroupVersion { group: "", version },
            ["apis", group, version] => Self::GroupVersion { group, version },
            ["api", version, rest @ ..] => Self::resource("", version, rest),
            ["apis", group, version, rest @ ..] => Self::resource(group, version, rest),
            _ => Self::Unknown,
        }
    }

    fn resource(group: &'a str, version: &'a str, rest: &[&'a str]) -> Self {
        let (is_watch, rest) = match rest {
            ["watch", rest @ ..] if !rest.is_empty() => (true, rest),
            _ => (false, rest),
        };
        let place = |namespace, resource, name, subresource| {
            Self::Resource(Place {
                group,
                version,
                namespace,
                resource,
                name,
                subresource,
                is_watch,
            })
        };
        match *rest {
            // A namespace is an object too, with two subresources of its own.
            ["namespaces", name, subresource @ ("status" | "finalize")] if group.is_empty() => {
                place(None, "namespaces", name, subresource)
            }
            ["namespaces", name] if group.is_empty() => place(None, "namespaces", name, ""),
            ["namespaces", namespace, resource] => place(Some(namespace), resource, "", ""),
            ["namespaces", namespace, resource, name] => place(Some(namespace), resource, name, ""),
            ["namespaces", namespace, resource, name, subresource] => {
                place(Some(namespace), resource, name, subresource)
            }
            [resource] => place(None, resource, "", ""),
            [resource, name] => place(None, resource, name, ""),
            [resource, name, subresource] => place(None, resource, name, subresource),
            _ => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(path: &str) -> Place<'_> {
        match Route::parse(path) {
            Route::Resource(place) => place,
            other => panic!("{path} is {other:?}"),
        }
    }

    #[test]
    fn a_path_is_a_route() {
        for (path, route) in [
            ("/", Route::Root),
            ("/api", Route::CoreVersions),
            ("/apis/", Route::Groups),
            ("/apis/apps", Route::Group("apps")),
            (
                "/api/v1",
                Route::GroupVersion {
                    group: "",
                    version: "v1",
                },
            ),
            (
                "/apis/apps/v1",
                Route::GroupVersion {
                    group: "apps",
                    version: "v1",
                },
            ),
            ("/openapi/v3", Route::OpenApiIndex),
            ("/openapi/v3/apis/apps/v1", Route::OpenApi("apis/apps/v1")),
            ("/openapi/v2", Route::Unknown),
            ("/readyz/ping", Route::Health("/readyz/ping")),
            ("/nothing", Route::Unknown),
        ] {
            assert_eq!(Route::parse(path), route, "{path}");
        }
    }

    #[test]
    fn a_path_names_a_collection_an_object_or_a_subresource() {
        let pods = place("/api/v1/namespaces/a/pods");
        assert_eq!((pods.namespace, pods.resource, pods.name), (Some("a"), "pods", ""));
        let status = place("/apis/apps/v1/namespaces/a/deployments/web/status");
        assert_eq!(
            (status.group, status.name, status.subresource),
            ("apps", "web", "status")
        );
        let all = place("/api/v1/pods");
        assert_eq!((all.namespace, all.resource), (None, "pods"));
        let namespace = place("/api/v1/namespaces/a");
        assert_eq!(
            (namespace.namespace, namespace.resource, namespace.name),
            (None, "namespaces", "a")
        );
        let finalize = place("/api/v1/namespaces/a/finalize");
        assert_eq!((finalize.resource, finalize.subresource), ("namespaces", "finalize"));
    }
}

//! Answers that are not about objects: health, version, discovery, OpenAPI, metrics.

use std::sync::{Arc, Mutex, PoisonError};

use http::header::IF_NONE_MATCH;
use http::request::Parts;
use serde_json::{Value, json};

use crate::api::Server;
use crate::api::answer::Answer;
use crate::api::discovery::{self, Aggregated, Half};
use crate::api::negotiate::{aggregated, representation};
use crate::api::query::Query;
use crate::api::route::Route;
use crate::fault::Fault;
use crate::registry::catalog::Catalog;
use crate::registry::row::Row;

/// What was made of a catalog is kept while it is the catalog.
#[derive(Debug, Default)]
pub(crate) struct Documents {
    kept: Mutex<Option<Kept>>,
}

/// The catalog, and what was made of it by name.
type Kept = (Arc<Catalog>, Vec<(String, Arc<Document>)>);

/// Bytes, and the tag that says whether they changed.
#[derive(Debug)]
struct Document {
    bytes: bytes::Bytes,
    etag: String,
}

impl Documents {
    fn get(&self, catalog: &Arc<Catalog>, name: &str, make: impl FnOnce() -> Option<Value>) -> Option<Arc<Document>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if !matches!(&*kept, Some((of, _)) if Arc::ptr_eq(of, catalog)) {
            *kept = Some((catalog.clone(), Vec::new()));
        }
        let (_, documents) = kept.as_mut()?;
        if let Some((_, document)) = documents.iter().find(|(known, _)| known == name) {
            return Some(document.clone());
        }
        let mut bytes = make()?.to_string().into_bytes();
        bytes.push(b'\n');
        let document = Arc::new(Document {
            etag: discovery::etag(&bytes),
            bytes: bytes.into(),
        });
        documents.push((name.to_owned(), document.clone()));
        Some(document)
    }
}

impl Server {
    /// Everything is alive that can answer; it is ready as long as what is written reaches the disk and the controllers
    /// run. Single checks are named as the reference names them.
    fn health(&self, path: &str, query: &Query) -> Answer {
        let mut names = path.trim_matches('/').split('/');
        let name = names.next().unwrap_or("healthz");
        let check = names.next();
        let asks = |names: &[&str]| name == "readyz" && check.is_none_or(|check| names.contains(&check));
        let mut wrong = String::new();
        if asks(&["store", "etcd"])
            && let Err(why) = self.registry.store.health()
        {
            wrong.push_str(&format!("[-]store failed: {why}\n"));
        }
        if asks(&["controllers"])
            && let Some(why) = self.controllers_failed.get()
        {
            wrong.push_str(&format!("[-]controllers failed: {why}\n"));
        }
        if !wrong.is_empty() {
            return Answer::text(500, format!("[+]ping ok\n{wrong}{name} check failed\n"));
        }
        if query.flag("verbose") {
            return Answer::text(200, format!("[+]ping ok\n[+]store ok\n{name} check passed\n"));
        }
        Answer::text(200, "ok")
    }

    pub(super) fn document(&self, route: &Route<'_>, parts: &Parts, query: &Query) -> Result<Answer, Fault> {
        let catalog = self.registry.catalog();
        let rows = || catalog.rows();
        let kept = |name: &str, content_type: &str, make: &dyn Fn() -> Option<Value>| {
            let document = self.documents.get(&catalog, name, make).ok_or_else(no_such_path)?;
            Ok(tagged(parts, content_type, &document))
        };
        let json = "application/json";
        match route {
            Route::Health(path) => Ok(self.health(path, query)),
            Route::Version => {
                let format = representation(&parts.headers, true, false)?.format;
                let version = discovery::version(env!("CARGO_PKG_VERSION"));
                Ok(Answer::value(200, &version, format))
            }
            Route::Metrics => Ok(Answer::bytes(
                200,
                "text/plain; version=0.0.4; charset=utf-8",
                self.metrics(),
            )),
            Route::Root => Ok(Answer::value(
                200,
                &self.paths(&catalog),
                representation(&parts.headers, false, false)?.format,
            )),
            Route::CoreVersions | Route::Groups => {
                let is_core = matches!(route, Route::CoreVersions);
                match aggregated(&parts.headers).and_then(Aggregated::parse) {
                    Some(form) => {
                        let half = if is_core { Half::Core } else { Half::Groups };
                        let name = format!("{is_core} {}", form.content_type());
                        kept(&name, form.content_type(), &|| {
                            Some(discovery::aggregated(&rows(), half, form))
                        })
                    }
                    None if is_core => {
                        // The address is known only once somebody listens.
                        let address = &self.security.address().to_string();
                        kept(&format!("/api {address}"), json, &|| {
                            Some(discovery::core_versions(address))
                        })
                    }
                    None => kept("/apis", json, &|| Some(discovery::group_list(&rows()))),
                }
            }
            Route::Group(group) => kept(group, json, &|| discovery::group(&rows(), group)),
            Route::GroupVersion { group, version }
                if !catalog.has_version(group, version)
                    && catalog.iter().any(|resource| &*resource.row.group == *group) =>
            {
                Err(nothing_there())
            }
            Route::GroupVersion { group, version } => kept(&format!("{group}/{version}"), json, &|| {
                discovery::resource_list(&rows(), group, version)
            }),
            Route::OpenApiIndex => {
                let index = self.openapi.index(&rows());
                // The reference says so, too.
                Ok(Answer::bytes(200, "text/plain; charset=utf-8", index.to_string()))
            }
            Route::OpenApi(path) => self.openapi_document(path, parts, &rows()),
            Route::Resource(_) | Route::Machines(_) | Route::Unknown => Err(no_such_path()),
        }
    }

    fn openapi_document(&self, path: &str, parts: &Parts, rows: &[Arc<Row>]) -> Result<Answer, Fault> {
        let found = match path.split('/').collect::<Vec<_>>().as_slice() {
            ["api", version] => self.openapi.document(rows, "", version),
            ["apis", group, version] => self.openapi.document(rows, group, version),
            _ => None,
        };
        match found {
            Some(found) => {
                let document = Document {
                    bytes: found.body,
                    etag: format!("\"{}\"", found.hash),
                };
                Ok(tagged(parts, "application/json", &document))
            }
            None => Ok(Answer::nothing(404)),
        }
    }

    /// `/`: which paths there are.
    fn paths(&self, catalog: &Catalog) -> Value {
        let mut paths: Vec<String> = [
            "/api",
            "/api/v1",
            "/apis",
            "/healthz",
            "/livez",
            "/metrics",
            "/openapi/v3",
            "/readyz",
            "/version",
        ]
        .map(str::to_owned)
        .to_vec();
        for (group, version) in discovery::group_versions(&catalog.rows()) {
            if !group.is_empty() {
                paths.push(format!("/apis/{group}"));
                paths.push(format!("/apis/{group}/{version}"));
            }
        }
        paths.sort();
        paths.dedup();
        json!({"paths": paths})
    }

    /// Counts of the store, for whoever scrapes.
    fn metrics(&self) -> String {
        let stats = self.registry.store.stats();
        let lines = [
            (
                "usher_embedded_revision",
                "The newest revision.",
                self.registry.store.revision(),
            ),
            ("usher_embedded_writes_total", "Writes since the start.", stats.writes),
            (
                "usher_embedded_commits_total",
                "Commits to disk since the start.",
                stats.commits,
            ),
            ("usher_embedded_objects", "Objects that are kept.", stats.keys as u64),
            ("usher_embedded_watchers", "Open watches.", stats.watchers as u64),
            (
                "usher_embedded_bytes",
                "Bytes of the latest objects.",
                stats.live_bytes as u64,
            ),
            (
                "usher_embedded_history_bytes",
                "Bytes that only history holds.",
                stats.old_bytes as u64,
            ),
        ];
        let mut text = String::new();
        for (name, help, value) in lines {
            let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
            text.push_str(&format!("# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n"));
        }
        text
    }
}

fn tagged(parts: &Parts, content_type: &str, document: &Document) -> Answer {
    let is_known = parts
        .headers
        .get(IF_NONE_MATCH)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|tags| tags.split(',').any(|tag| tag.trim() == document.etag));
    let answer = if is_known {
        Answer::bytes(304, content_type, bytes::Bytes::new())
    } else {
        Answer::bytes(200, content_type, document.bytes.clone())
    };
    answer.with_etag(document.etag.clone())
}

/// A resource that is not served, in a group that is.
pub(super) fn nothing_there() -> Fault {
    let mut fault = Fault::new(404, "NotFound", "the server could not find the requested resource");
    fault.details = Some(serde_json::Map::new());
    fault
}

/// What the reference says of a path it does not know: no `Status`, since nothing Kubernetes is there.
pub(super) fn no_such_path() -> Fault {
    let mut fault = Fault::new(404, "", "404 page not found");
    fault.is_plain = true;
    fault
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use http::Request;
    use http_body_util::{BodyExt as _, Full};

    use crate::admission::Admission;
    use crate::api::{ApiService, Documents, Server, openapi};
    use crate::clock::Clock;
    use crate::kinds;
    use crate::registry::Registry;
    use crate::security::{Secrets, Security};
    use crate::store::{Disk, Durability, Options, Store};

    /// A file whose disk is full when it is told so.
    #[derive(Debug)]
    struct Filling {
        file: tempfile::NamedTempFile,
        is_full: Arc<AtomicBool>,
    }

    #[derive(Debug)]
    struct Backend {
        file: redb::backends::FileBackend,
        is_full: Arc<AtomicBool>,
    }

    impl Disk for Filling {
        fn path(&self) -> &Path {
            Path::new("/data/store.redb")
        }

        fn backend(&self) -> io::Result<Box<dyn redb::StorageBackend>> {
            let file = redb::backends::FileBackend::new(self.file.reopen()?).map_err(io::Error::other)?;
            let is_full = self.is_full.clone();
            Ok(Box::new(Backend { file, is_full }))
        }
    }

    impl redb::StorageBackend for Backend {
        fn len(&self) -> io::Result<u64> {
            self.file.len()
        }

        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            self.file.read(offset, out)
        }

        fn set_len(&self, len: u64) -> io::Result<()> {
            self.file.set_len(len)
        }

        fn sync_data(&self) -> io::Result<()> {
            if self.is_full.load(Ordering::SeqCst) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.file.sync_data()
        }

        fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            self.file.write(offset, data)
        }

        fn close(&self) -> io::Result<()> {
            self.file.close()
        }
    }

    #[tokio::test]
    async fn ready_is_who_can_store_and_alive_is_who_can_say_that_it_cannot() {
        let is_full = Arc::new(AtomicBool::new(false));
        let disk = Filling {
            file: tempfile::NamedTempFile::new().unwrap(),
            is_full: is_full.clone(),
        };
        let options = Options::new(|| Clock::System.now());
        let store = Store::open_on(disk, Durability::Fsync, options).unwrap();
        let registry = Registry::new(store, Clock::System, 0, Admission::default());
        let server = Arc::new(Server {
            registry: Arc::new(registry),
            security: Security::new(Secrets::random().unwrap()).into(),
            documents: Documents::default(),
            openapi: openapi::Documents::new(kinds::definition),
            audit: None,
            doors: crate::node::door::AllDoors::default(),
            machine: std::sync::OnceLock::new(),
            controllers_failed: std::sync::OnceLock::new(),
        });
        let ask = |method: &'static str, path: &'static str, body: &'static str| {
            let request = Request::builder().method(method).uri(path);
            let request = request.header("content-type", "application/json");
            let request = request.body(Full::from(body)).unwrap();
            let service = ApiService::trusted(server.clone());
            async move {
                let (parts, body) = service.answer(request).await.into_parts();
                let bytes = body.collect().await.unwrap().to_bytes();
                (parts.status.as_u16(), String::from_utf8(bytes.to_vec()).unwrap())
            }
        };
        let node = r#"{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}"#;
        let fine = (200, "ok".to_owned());
        assert_eq!(ask("GET", "/readyz", "").await, fine);
        is_full.store(true, Ordering::SeqCst);
        let (code, told) = ask("POST", "/api/v1/nodes", node).await;
        assert_eq!(code, 500, "{told}");
        let failed = "[+]ping ok\n[-]store failed: the disk of /data/store.redb is full: free some space and try again\n\
             readyz check failed\n";
        assert_eq!(ask("GET", "/readyz", "").await, (500, failed.to_owned()));
        for path in ["/livez", "/healthz", "/readyz/ping"] {
            assert_eq!(ask("GET", path, "").await, fine, "{path}");
        }
        is_full.store(false, Ordering::SeqCst);
        assert_eq!(ask("POST", "/api/v1/nodes", node).await.0, 201);
        assert_eq!(ask("GET", "/readyz", "").await, fine);
    }
}

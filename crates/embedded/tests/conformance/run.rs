//! Plays a case against a server and writes down what it answers, as text per step.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use http::{HeaderMap, Request};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use crate::case::{Action, Case, Options, Source, Step, Until};
use crate::normal::Normaliser;
use crate::render::{render, render_at};
use crate::select::Path;
use crate::target::Target;

/// An answer that takes longer is none. Generous: on a busy machine two servers and a compiler share two cores.
const PATIENCE: Duration = Duration::from_secs(20);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// One step and what came of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    pub title: String,
    pub text: String,
}

/// `Err` when the story could not be told to its end, with what was answered until then.
pub async fn run(case: &Case, target: &Target, namespace: &str) -> Result<Vec<Answer>, (Vec<Answer>, String)> {
    let mut player = Player {
        client: target.client(),
        target,
        names: names(namespace),
        normaliser: Normaliser::new(namespace, &case.text),
        watches: HashMap::new(),
        made: Vec::new(),
        namespace: namespace.to_owned(),
    };
    let mut answers = Vec::new();
    let mut failure = player.move_in().await.err();
    for (index, step) in case.steps.iter().enumerate() {
        if failure.is_some() {
            break;
        }
        match player.step(step).await {
            Ok(text) => answers.push(Answer {
                title: step.title.clone(),
                text,
            }),
            Err(why) => failure = Some(format!("step {}, {}: {why}", index + 1, step.title)),
        }
    }
    player.move_out().await;
    match failure {
        None => Ok(answers),
        Some(why) => Err((answers, why)),
    }
}

fn names(namespace: &str) -> BTreeMap<String, String> {
    let group = format!("{namespace}.example.com");
    let known = [
        ("core", format!("/api/v1/namespaces/{namespace}")),
        ("apps", format!("/apis/apps/v1/namespaces/{namespace}")),
        ("crs", format!("/apis/{group}/v1/namespaces/{namespace}")),
        (
            "crd",
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions".to_owned(),
        ),
        ("ns", namespace.to_owned()),
        ("group", group),
    ];
    known
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

struct Player<'a> {
    client: Client,
    target: &'a Target,
    names: BTreeMap<String, String>,
    normaliser: Normaliser,
    watches: HashMap<String, Watch>,
    /// Paths of objects outside of the namespace, to be removed in the end.
    made: Vec<String>,
    namespace: String,
}

/// What one request got.
struct Got {
    code: u16,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Got {
    fn header(&self, name: &str) -> Option<String> {
        self.headers
            .get(name)
            .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
    }

    fn json(&self) -> Option<Value> {
        serde_json::from_slice(&self.body).ok()
    }
}

impl Player<'_> {
    async fn step(&mut self, step: &Step) -> Result<String, String> {
        let options = &step.options;
        match &step.action {
            Action::Request {
                method,
                path,
                content_type,
            } => {
                let got = self.ask_until(method, path, content_type, options).await?;
                self.capture(&got, options)?;
                if got.code == 201 {
                    self.remember(method, path, &got);
                }
                Ok(self.tell(&got, options))
            }
            Action::Crd { kind } => self.crd(kind, options).await,
            Action::Watch { name, path } => self.open(name, path, options).await,
            Action::Events { name, count } => {
                let mut events = Vec::new();
                for seen in 0..*count {
                    let next = self.watch(name)?.next().await.map_err(|why| {
                        let before: String = events.iter().map(render).collect();
                        format!("{why} after {seen} of {count} events:\n{before}")
                    })?;
                    events.push(next.ok_or_else(|| format!("closed after {seen} of {count} events"))?);
                }
                Ok(self.events(events, options))
            }
            Action::End { name } => {
                let mut events = Vec::new();
                while let Some(event) = self.watch(name)?.next().await? {
                    events.push(event);
                }
                self.watches.remove(name);
                Ok(self.events(events, options) + "closed\n")
            }
            Action::Close { name } => {
                self.watch(name)?;
                self.watches.remove(name);
                Ok(String::new())
            }
            Action::Compact => self.target.compact().await.map(|()| String::new()),
        }
    }

    /// The names a case uses get their values; `$patch` and the like are left alone.
    fn fill(&self, text: &str) -> String {
        // The longest first, so that `$nsx` is not taken for `$ns`.
        let mut names: Vec<_> = self.names.iter().collect();
        names.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        names.into_iter().fold(text.to_owned(), |text, (name, value)| {
            text.replace(&format!("${name}"), value)
        })
    }

    fn filled(&self, path: &Path) -> Result<Path, String> {
        Path::parse(&self.fill(path.text()))
    }

    fn path(&self, path: &str) -> Result<String, String> {
        let path = self.fill(path);
        match path.contains('$') {
            true => Err(format!("{path}: nothing of that name was captured")),
            false => Ok(path),
        }
    }

    fn request(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        options: &Options,
    ) -> Result<Request<Body>, String> {
        let mut request = Request::builder().method(method).uri(self.path(path)?);
        let body = match &options.body {
            None => Vec::new(),
            Some(body) if options.raw => self.fill(body).into_bytes(),
            Some(body) => {
                let value: Value = serde_saphyr::from_str(&self.fill(body)).map_err(|error| error.to_string())?;
                value.to_string().into_bytes()
            }
        };
        let given = |name: &str| {
            options
                .headers
                .iter()
                .any(|(header, _)| header.eq_ignore_ascii_case(name))
        };
        // What the server calls the writer in managedFields.
        if !given("user-agent") {
            request = request.header("user-agent", "conformance/1");
        }
        if !given("accept") {
            request = request.header("accept", "application/json");
        }
        if options.body.is_some() && !given("content-type") {
            request = request.header("content-type", content_type);
        }
        for (name, value) in &options.headers {
            request = request.header(name, self.fill(value));
        }
        request.body(Body::from(body)).map_err(|error| error.to_string())
    }

    async fn ask(&self, request: Request<Body>) -> Result<Got, String> {
        let asking = async {
            let response = self.client.send(request).await.map_err(|error| error.to_string())?;
            let (head, body) = response.into_parts();
            let body = body.collect().await.map_err(|error| error.to_string())?;
            Ok(Got {
                code: head.status.as_u16(),
                headers: head.headers,
                body: body.to_bytes().to_vec(),
            })
        };
        timeout(PATIENCE, asking).await.map_err(|_| "no answer".to_owned())?
    }

    async fn ask_until(&self, method: &str, path: &str, content_type: &str, options: &Options) -> Result<Got, String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let got = self.ask(self.request(method, path, content_type, options)?).await?;
            let Some(until) = &options.until else {
                return Ok(got);
            };
            let body = got.json().unwrap_or_default();
            let done = match until {
                Until::Code(code) => got.code == *code,
                Until::Equals(path, value) => {
                    let value: Value =
                        serde_json::from_str(&self.fill(&value.to_string())).map_err(|e| e.to_string())?;
                    self.filled(path)?.one(&body) == Some(&value)
                }
                Until::Exists(path) => self.filled(path)?.one(&body).is_some(),
            };
            if done {
                return Ok(got);
            }
            if Instant::now() > deadline {
                return Err(format!("not so yet: {until:?}; {}\n{}", got.code, render(&body)));
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    fn capture(&mut self, got: &Got, options: &Options) -> Result<(), String> {
        for (name, source) in &options.captures {
            let value = match source {
                Source::Header(header) => got.header(header).ok_or_else(|| format!("no header {header}"))?,
                Source::Body(path) => {
                    let body = got.json().unwrap_or_default();
                    match path.one(&body) {
                        Some(Value::String(text)) => text.clone(),
                        Some(other) => other.to_string(),
                        None => return Err(format!("no {} in {}\n{}", path.text(), got.code, render(&body))),
                    }
                }
            };
            self.names.insert(name.clone(), value);
        }
        Ok(())
    }

    fn tell(&mut self, got: &Got, options: &Options) -> String {
        let mut text = got.code.to_string();
        if let Some(content_type) = got.header("content-type") {
            text = format!("{text} {content_type}");
        }
        text.push('\n');
        for warning in got.headers.get_all("warning") {
            let warning = String::from_utf8_lossy(warning.as_bytes()).into_owned();
            text += &format!("warning: {}\n", self.normaliser.text(&warning));
        }
        for name in &options.shown_headers {
            let value = got.header(name).map(|value| self.normaliser.text(&value));
            text += &format!("{name}: {}\n", value.as_deref().unwrap_or("none"));
        }
        match got.json() {
            Some(body) => text += &self.selected(body, options),
            None => {
                let body = self.normaliser.text(&String::from_utf8_lossy(&got.body));
                text.extend(body.lines().map(|line| format!("| {line}\n")));
            }
        }
        text
    }

    fn selected(&mut self, mut body: Value, options: &Options) -> String {
        for path in &options.drop {
            if let Ok(path) = self.filled(path) {
                path.remove(&mut body);
            }
        }
        self.normaliser.value(&mut body);
        if options.show.is_empty() {
            return render(&body);
        }
        let mut text = String::new();
        for path in &options.show {
            // What it compares with is normalised by now.
            let normal = self.filled(path).map(|filled| self.normaliser.text(filled.text()));
            let normal = normal.and_then(|text| Path::parse(&text));
            let found = normal.as_ref().map(|path| path.all(&body)).unwrap_or_default();
            if found.is_empty() {
                text += &format!("{}: none\n", path.text());
            }
            for value in found {
                text += &render_at(path.text(), value);
            }
        }
        text
    }

    fn events(&mut self, events: Vec<Value>, options: &Options) -> String {
        events
            .into_iter()
            .map(|event| format!("--\n{}", self.selected(event, options)))
            .collect()
    }

    async fn open(&mut self, name: &str, path: &str, options: &Options) -> Result<String, String> {
        let request = self.request("GET", path, "", options)?;
        let answer = timeout(PATIENCE, self.client.send(request))
            .await
            .map_err(|_| "no answer".to_owned())?;
        let response = answer.map_err(|error| error.to_string())?;
        let (head, body) = response.into_parts();
        if head.status != 200 {
            let body = timeout(PATIENCE, body.collect())
                .await
                .map_err(|_| "no answer".to_owned())?;
            let got = Got {
                code: head.status.as_u16(),
                headers: head.headers,
                body: body.map_err(|error| error.to_string())?.to_bytes().to_vec(),
            };
            return Ok(self.tell(&got, options));
        }
        let got = Got {
            code: 200,
            headers: head.headers,
            body: Vec::new(),
        };
        self.watches.insert(
            name.to_owned(),
            Watch {
                body,
                buffer: Vec::new(),
            },
        );
        Ok(self.tell(&got, options))
    }

    fn watch(&mut self, name: &str) -> Result<&mut Watch, String> {
        self.watches
            .get_mut(name)
            .ok_or_else(|| format!("no watch {name} is open"))
    }

    /// A CRD whose only version is the body, and waits until it is served. Answers only if it is refused.
    async fn crd(&mut self, kind: &str, options: &Options) -> Result<String, String> {
        let mut version: Value =
            serde_saphyr::from_str(&self.fill(options.body.as_deref().unwrap_or("{}"))).map_err(|e| e.to_string())?;
        let plural = format!("{}s", kind.to_lowercase());
        let group = self.names["group"].clone();
        let name = format!("{plural}.{group}");
        let fields = version.as_object_mut().ok_or("the body is a version")?;
        let mut schema = fields
            .remove("schema")
            .unwrap_or_else(|| json!({"x-kubernetes-preserve-unknown-fields": true}));
        schema["type"] = "object".into();
        fields.insert("schema".into(), json!({ "openAPIV3Schema": schema }));
        fields.insert("name".into(), "v1".into());
        fields.insert("served".into(), true.into());
        fields.insert("storage".into(), true.into());
        let crd = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": name},
            "spec": {"group": group, "scope": "Namespaced", "versions": [version],
                     "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()}},
        });
        let post = Options {
            body: Some(crd.to_string()),
            ..Options::default()
        };
        let got = self
            .ask(self.request("POST", "$crd", "application/json", &post)?)
            .await?;
        if got.code != 201 {
            return Ok(self.tell(&got, options));
        }
        self.made.push(format!("{}/{name}", self.names["crd"]));
        let until = |until| Options {
            until: Some(until),
            ..Options::default()
        };
        self.ask_until("GET", &format!("$crs/{plural}"), "", &until(Until::Code(200)))
            .await?;
        Ok("served\n".to_owned())
    }

    fn remember(&mut self, method: &str, path: &str, got: &Got) {
        let Ok(path) = self.path(path) else { return };
        let path = path.split('?').next().unwrap_or_default();
        let inside = path.contains(&format!("/namespaces/{}/", self.namespace));
        let name = got
            .json()
            .and_then(|body| body["metadata"]["name"].as_str().map(str::to_owned));
        match (method, name) {
            _ if inside => {}
            ("POST", Some(name)) => self.made.push(format!("{path}/{name}")),
            ("POST", None) => {}
            _ => self.made.push(path.to_owned()),
        }
    }

    /// The namespace, and the ServiceAccount every pod needs, which on a bare server nobody else makes.
    async fn move_in(&self) -> Result<(), String> {
        let post = |object: Value| Options {
            body: Some(object.to_string()),
            ..Options::default()
        };
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}});
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
        for (path, object) in [("/api/v1/namespaces", namespace), ("$core/serviceaccounts", account)] {
            let got = self
                .ask(self.request("POST", path, "application/json", &post(object))?)
                .await?;
            if !matches!(got.code, 201 | 409) {
                return Err(format!(
                    "cannot make ready: {}\n{}",
                    got.code,
                    render(&got.json().unwrap_or_default())
                ));
            }
        }
        Ok(())
    }

    /// Leaves no trace, as far as a bare server lets one.
    async fn move_out(&mut self) {
        self.watches.clear();
        let namespace = format!("/api/v1/namespaces/{}", self.namespace);
        for path in self.made.iter().rev().chain([&namespace]) {
            let plain = Options::default();
            let Ok(delete) = self.request("DELETE", path, "", &plain) else {
                continue;
            };
            let Ok(left) = self.ask(delete).await else { continue };
            let is_namespace = path
                .strip_prefix("/api/v1/namespaces/")
                .is_some_and(|name| !name.contains('/'));
            let Some(mut object) = left.json().filter(|_| is_namespace && !self.target.has_controllers()) else {
                continue;
            };
            object["spec"]["finalizers"] = json!([]);
            let finalize = Options {
                body: Some(object.to_string()),
                ..Options::default()
            };
            if let Ok(request) = self.request("PUT", &format!("{path}/finalize"), "application/json", &finalize) {
                let _ = self.ask(request).await;
            }
        }
    }
}

struct Watch {
    body: Body,
    buffer: Vec<u8>,
}

impl Watch {
    /// `None`: closed by the server.
    async fn next(&mut self) -> Result<Option<Value>, String> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return serde_json::from_slice(&line)
                    .map(Some)
                    .map_err(|error| error.to_string());
            }
            match timeout(PATIENCE, self.body.frame()).await {
                Err(_) => return Err("nothing came".to_owned()),
                Ok(None) => return Ok(None),
                Ok(Some(Err(error))) => return Err(error.to_string()),
                Ok(Some(Ok(frame))) => self.buffer.extend(frame.into_data().unwrap_or_default()),
            }
        }
    }
}

//! Plays a case against a server and writes down what it answers, as text per step.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine};
use http::{HeaderMap, Request};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::Value;
use tokio::time::{Instant, timeout};

use crate::case::{Action, Case, Form, Options, Source, Step, Until};
use crate::normal::Normaliser;
use crate::render::{render, render_at};
use crate::select::Path;
use crate::target::Target;

mod lodging;
#[cfg(test)]
mod tests;
mod watch;

use watch::Watch;

const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// What is waited for may be the second restart of a crash loop, on a busy machine, or the end of a node's grace (50 s).
const UNTIL_LIMIT: Duration = Duration::from_secs(90);
/// Once something did not come about in that time, what follows from it will hardly do so.
const UNTIL_LIMIT_AFTER_FAILURE: Duration = Duration::from_secs(2);

/// One step and what came of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    pub title: String,
    pub text: String,
}

/// What was answered to each step, and what did not work out at all: these cannot be recorded.
#[derive(Debug, Default)]
pub struct Story {
    pub answers: Vec<Answer>,
    pub failures: Vec<String>,
}

/// A step that fails does not end the story: whoever builds a server wants to know about the rest as well.
pub async fn run(case: &Case, target: &Target, namespace: &str) -> Story {
    let mut player = Player {
        client: target.client(),
        target,
        names: names(namespace),
        normaliser: Normaliser::new(namespace, &case.text),
        watches: HashMap::new(),
        made: Vec::new(),
        namespace: namespace.to_owned(),
        patience: UNTIL_LIMIT,
    };
    let mut story = Story::default();
    story.failures.extend(player.move_in().await.err());
    for (index, step) in case.steps.iter().enumerate() {
        let text = player.step(step).await.unwrap_or_else(|why| {
            story
                .failures
                .push(format!("step {}, {}: {why}", index + 1, step.title));
            format!("{}\n", player.normaliser.text(&why))
        });
        let title = step.title.clone();
        story.answers.push(Answer { title, text });
    }
    player.move_out().await;
    story
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
    /// How long something is waited for.
    patience: Duration,
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
                if got.code == 201 {
                    self.remember(method, path, &got);
                }
                let told = self.tell(&got, options);
                self.capture(&got, options).map_err(|why| format!("{told}{why}"))?;
                Ok(told)
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
            Some(body) => match options.form {
                Form::Raw => self.fill(body).into_bytes(),
                Form::Base64 => {
                    let text: String = body.split_whitespace().collect();
                    BASE64_STANDARD.decode(text).map_err(|error| error.to_string())?
                }
                Form::Yaml => {
                    let value: Value = serde_saphyr::from_str(&self.fill(body)).map_err(|error| error.to_string())?;
                    value.to_string().into_bytes()
                }
            },
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
        timeout(Target::PATIENCE, asking)
            .await
            .map_err(|_| "no answer".to_owned())?
    }

    async fn ask_until(
        &mut self,
        method: &str,
        path: &str,
        content_type: &str,
        options: &Options,
    ) -> Result<Got, String> {
        let deadline = Instant::now() + self.patience;
        loop {
            let got = self.ask(self.request(method, path, content_type, options)?).await?;
            let body = got.json().unwrap_or_default();
            let mut missing = None;
            for until in &options.until {
                if !self.is_so(until, got.code, &body)? {
                    missing = Some(until);
                }
            }
            let Some(until) = missing else {
                return Ok(got);
            };
            if Instant::now() > deadline {
                self.patience = UNTIL_LIMIT_AFTER_FAILURE;
                return Err(format!("not so yet: {until:?}; {}\n{}", got.code, render(&body)));
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    fn is_so(&self, until: &Until, code: u16, body: &Value) -> Result<bool, String> {
        Ok(match until {
            Until::Code(wanted) => code == *wanted,
            Until::Equals(path, value) => {
                let value: Value = serde_json::from_str(&self.fill(&value.to_string())).map_err(|e| e.to_string())?;
                self.filled(path)?.one(body) == Some(&value)
            }
            Until::Differs(path, value) => {
                let value: Value = serde_json::from_str(&self.fill(&value.to_string())).map_err(|e| e.to_string())?;
                self.filled(path)?.one(body).is_some_and(|found| *found != value)
            }
            Until::Exists(path) => self.filled(path)?.one(body).is_some(),
            Until::Count(path, count) => self.filled(path)?.all(body).len() == *count,
        })
    }

    fn capture(&mut self, got: &Got, options: &Options) -> Result<(), String> {
        for (name, source) in &options.captures {
            let value = match source {
                Source::Header(header) => got.header(header).ok_or_else(|| format!("no header {header}"))?,
                Source::Body(path) => {
                    let mut body = got.json().unwrap_or_default();
                    self.sort(&mut body, options);
                    match path.one(&body) {
                        Some(Value::String(text)) => text.clone(),
                        Some(other) => other.to_string(),
                        None => return Err(format!("no {} to be kept as ${name}", path.text())),
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

    fn sort(&self, body: &mut Value, options: &Options) {
        for (list, by) in &options.sort {
            list.sort(body, by);
        }
    }

    fn selected(&mut self, mut body: Value, options: &Options) -> String {
        self.sort(&mut body, options);
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
        let answer = timeout(Target::PATIENCE, self.client.send(request))
            .await
            .map_err(|_| "no answer".to_owned())?;
        let response = answer.map_err(|error| error.to_string())?;
        let (head, body) = response.into_parts();
        if head.status != 200 {
            let body = timeout(Target::PATIENCE, body.collect())
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
                patience: Target::PATIENCE,
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
}

//! The language of `.case` files. A case is a story told in requests; [`parse`] turns it into steps, [`crate::run`] plays
//! them.
//!
//! ```text
//! # What this case is about, and the rule it holds.
//! controllers: true                     (only where kube-controller-manager has a part in it)
//! scheduler: true                       (the same with kube-scheduler; such a case has all nodes for itself)
//! node: true                            (the same with a node, `node-1`, where pods run)
//! drop ..managedFields                  (up here: in every step)
//! suffixes: alike                       (of names that controllers complete: which of them is first is by chance)
//!
//! POST $core/configmaps                 (GET, POST, PUT, DELETE, PATCH; APPLY, MERGE, STRATEGIC, JSON-PATCH are PATCHes)
//! > Accept: application/yaml            (a header of the request)
//!     metadata: {name: a}               (the body, indented: YAML, sent as JSON)
//! $uid = .metadata.uid                  (kept from the answer, to be used further down as $uid)
//! show .metadata.labels                 (compare only this, for documents too large or too different to compare whole)
//! drop .metadata.managedFields          (compare all but this)
//! sort .items by .status.phase          (a list whose order is by chance, before anything is kept or compared)
//! header Retry-After                    (compare this header of the answer as well)
//! until 404                             (ask again until the code is this …)
//! until .status.phase == "Active"       (… or until this is so; only the last answer is compared)
//! until .metadata.uid != "$uid"         (… or until it is there and something else)
//! until .items[*] count 3               (… or there are that many; several such lines must all be so)
//! raw                                   (the body is sent as it stands)
//! base64                                (the body is bytes; for protobuf, whose meaning a comment tells)
//!
//! CRD Widget                            (makes a CRD of $group and waits until it is served; body: its version v1)
//! WATCH w $core/configmaps?watch=true   (opens a watch called w)
//! EVENTS w 2                            (the next two events of w; `show` and `drop` apply to each)
//! END w                                 (whatever w still tells until the server closes it)
//! CLOSE w                               (we close it)
//! COMPACT                               (makes the server forget all history up to now)
//! ```
//!
//! `$ns` is the case's own namespace and, since it is different in each run, also what names of objects outside of
//! namespaces start with; `$group` is `$ns.example.com`, `$core` `/api/v1/namespaces/$ns`, `$apps`
//! `/apis/apps/v1/namespaces/$ns`, `$crs` `/apis/$group/v1/namespaces/$ns`, `$crd`
//! `/apis/apiextensions.k8s.io/v1/customresourcedefinitions`.

use crate::select::Path;

#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// `area/name`.
    pub name: String,
    pub needs: Needs,
    pub steps: Vec<Step>,
    /// The whole file: times and addresses written in it are not hidden by the normaliser.
    pub text: String,
}

/// What has to be there beside an API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    Nothing,
    Controllers,
    Scheduler,
    Node,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// The line a reader knows it by.
    pub title: String,
    pub action: Action,
    pub options: Options,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    Request {
        method: &'static str,
        path: String,
        /// Of the body, unless a header says otherwise.
        content_type: &'static str,
    },
    Crd {
        kind: String,
    },
    Watch {
        name: String,
        path: String,
    },
    Events {
        name: String,
        count: usize,
    },
    End {
        name: String,
    },
    Close {
        name: String,
    },
    Compact,
}

/// The lines below a step's first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Options {
    pub headers: Vec<(String, String)>,
    pub body: Option<String>,
    pub form: Form,
    pub captures: Vec<(String, Source)>,
    pub show: Vec<Path>,
    pub drop: Vec<Path>,
    /// Lists, and what their elements are put in order by.
    pub sort: Vec<(Path, Path)>,
    pub shown_headers: Vec<String>,
    pub until: Vec<Until>,
}

/// How the body stands in the file.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum Form {
    /// YAML, which is sent as JSON.
    #[default]
    Yaml,
    Raw,
    Base64,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Source {
    Body(Path),
    Header(String),
}

#[derive(Debug, Clone, PartialEq)]
pub enum Until {
    Code(u16),
    Equals(Path, serde_json::Value),
    Exists(Path),
    Count(Path, usize),
    Differs(Path, serde_json::Value),
}

impl Case {
    /// Others would notice what it does to the server: forgetting, or nodes that a scheduler puts their pods on.
    pub fn runs_alone(&self) -> bool {
        let makes_nodes = |step: &Step| matches!(&step.action, Action::Request { method: "POST", path, .. } if path == "/api/v1/nodes");
        let has_scheduler = self.needs != Needs::Nothing;
        self.needs == Needs::Scheduler
            || self
                .steps
                .iter()
                .any(|step| step.action == Action::Compact || (has_scheduler && makes_nodes(step)))
    }
}

const JSON: &str = "application/json";

/// Errors name the line.
pub fn parse(name: &str, text: &str) -> Result<Case, String> {
    let mut case = Case {
        name: name.to_owned(),
        needs: Needs::Nothing,
        steps: Vec::new(),
        text: text.to_owned(),
    };
    let mut commented = false;
    let mut dropped = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let wrong = |what: String| format!("{name}.case:{}: {what}", index + 1);
        if line.starts_with('#') {
            commented = true;
            continue;
        }
        if line.trim().is_empty() {
            // Inside a body it may matter; at its end it is trimmed.
            if let Some(body) = case.steps.last_mut().and_then(|step| step.options.body.as_mut()) {
                body.push('\n');
            }
            continue;
        }
        if case.steps.is_empty() {
            match line {
                "controllers: true" => case.needs = Needs::Controllers,
                "scheduler: true" => case.needs = Needs::Scheduler,
                "node: true" => case.needs = Needs::Node,
                _ => {}
            }
            if line.ends_with(": true") || line == "suffixes: alike" {
                continue;
            }
            if let Some(path) = line.strip_prefix("drop ") {
                dropped.push(Path::parse(path).map_err(wrong)?);
                continue;
            }
        }
        if let Some(action) = action(line).map_err(wrong)? {
            case.steps.push(Step {
                title: line.trim().to_owned(),
                action,
                options: Options::default(),
            });
            continue;
        }
        let step = case
            .steps
            .last_mut()
            .ok_or_else(|| wrong("a step begins with what it does".into()))?;
        option(line, &mut step.options).map_err(wrong)?;
    }
    if !commented {
        return Err(format!("{name}.case: begins with a comment: what is it about?"));
    }
    if case.steps.is_empty() {
        return Err(format!("{name}.case: has no step"));
    }
    for step in &mut case.steps {
        step.options.drop.extend(dropped.iter().cloned());
        if let Some(body) = &mut step.options.body {
            *body = dedent(body);
        }
    }
    Ok(case)
}

fn action(line: &str) -> Result<Option<Action>, String> {
    let mut words = line.split_whitespace();
    let verb = words.next().unwrap_or_default();
    let words: Vec<&str> = words.collect();
    let (method, content_type) = match verb {
        "GET" => ("GET", JSON),
        "POST" => ("POST", JSON),
        "PUT" => ("PUT", JSON),
        "DELETE" => ("DELETE", JSON),
        "PATCH" => ("PATCH", JSON),
        "APPLY" => ("PATCH", "application/apply-patch+yaml"),
        "MERGE" => ("PATCH", "application/merge-patch+json"),
        "STRATEGIC" => ("PATCH", "application/strategic-merge-patch+json"),
        "JSON-PATCH" => ("PATCH", "application/json-patch+json"),
        "CRD" | "WATCH" | "EVENTS" | "END" | "CLOSE" | "COMPACT" => ("", ""),
        _ => return Ok(None),
    };
    let action = match (verb, words.as_slice()) {
        ("CRD", [kind]) => Action::Crd {
            kind: (*kind).to_owned(),
        },
        ("WATCH", [name, path]) => Action::Watch {
            name: (*name).to_owned(),
            path: (*path).to_owned(),
        },
        ("EVENTS", [name, count]) => Action::Events {
            name: (*name).to_owned(),
            count: count.parse().map_err(|_| format!("{count} is no number of events"))?,
        },
        ("END", [name]) => Action::End {
            name: (*name).to_owned(),
        },
        ("CLOSE", [name]) => Action::Close {
            name: (*name).to_owned(),
        },
        ("COMPACT", []) => Action::Compact,
        (_, [path]) if !method.is_empty() => Action::Request {
            method,
            path: (*path).to_owned(),
            content_type,
        },
        _ => return Err(format!("{verb} does not take {words:?}")),
    };
    Ok(Some(action))
}

fn option(line: &str, options: &mut Options) -> Result<(), String> {
    if line.starts_with(char::is_whitespace) {
        let body = options.body.get_or_insert_default();
        body.push_str(line);
        body.push('\n');
    } else if let Some(header) = line.strip_prefix("> ") {
        let (name, value) = header.split_once(": ").ok_or("a header is `> Name: value`")?;
        options.headers.push((name.to_owned(), value.to_owned()));
    } else if let Some(capture) = line.strip_prefix('$') {
        let (name, from) = capture.split_once(" = ").ok_or("a capture is `$name = .path`")?;
        let source = match from.strip_prefix("header ") {
            Some(header) => Source::Header(header.to_owned()),
            None => Source::Body(Path::parse(from)?),
        };
        options.captures.push((name.to_owned(), source));
    } else if let Some(path) = line.strip_prefix("show ") {
        options.show.push(Path::parse(path)?);
    } else if let Some(path) = line.strip_prefix("drop ") {
        options.drop.push(Path::parse(path)?);
    } else if let Some(sort) = line.strip_prefix("sort ") {
        let (list, by) = sort
            .split_once(" by ")
            .ok_or("a list is put in order by `sort .list by .key`")?;
        options.sort.push((Path::parse(list)?, Path::parse(by)?));
    } else if let Some(header) = line.strip_prefix("header ") {
        options.shown_headers.push(header.to_owned());
    } else if let Some(condition) = line.strip_prefix("until ") {
        options.until.push(until(condition)?);
    } else if line == "raw" {
        options.form = Form::Raw;
    } else if line == "base64" {
        options.form = Form::Base64;
    } else {
        return Err(format!("cannot make sense of `{line}`"));
    }
    Ok(())
}

fn until(condition: &str) -> Result<Until, String> {
    if let Ok(code) = condition.parse() {
        return Ok(Until::Code(code));
    }
    if let Some((path, count)) = condition.split_once(" count ") {
        let count = count.parse().map_err(|_| format!("{count} is no number"))?;
        return Ok(Until::Count(Path::parse(path)?, count));
    }
    if let Some((path, value)) = condition.split_once(" != ") {
        let value = serde_json::from_str(value).map_err(|error| format!("{value}: {error}"))?;
        return Ok(Until::Differs(Path::parse(path)?, value));
    }
    match condition.split_once(" == ") {
        Some((path, value)) => {
            let value = serde_json::from_str(value).map_err(|error| format!("{value}: {error}"))?;
            Ok(Until::Equals(Path::parse(path)?, value))
        }
        None => Ok(Until::Exists(Path::parse(condition)?)),
    }
}

fn dedent(body: &str) -> String {
    let margin = |line: &str| line.len() - line.trim_start().len();
    let least = body
        .lines()
        .filter(|line| !line.trim().is_empty())
        .map(margin)
        .min()
        .unwrap_or(0);
    let lines: Vec<&str> = body.lines().map(|line| line.get(least..).unwrap_or_default()).collect();
    lines.join("\n").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_read_step_by_step() {
        let text = "# What.\n\nPOST $core/configmaps\n> X: y\n    a:\n      b: 1\n\n    c: 2\n$u = .metadata.uid\n\n\
                    # And then.\nWATCH w /x?watch=true\nEVENTS w 2\nshow .type\nGET /x\nuntil 404\n";
        let case = parse("area/name", text).unwrap();
        assert_eq!(case.steps.len(), 4);
        let first = &case.steps[0];
        assert_eq!(first.options.body.as_deref(), Some("a:\n  b: 1\n\nc: 2"));
        assert_eq!(first.options.headers, [("X".to_owned(), "y".to_owned())]);
        assert_eq!(first.options.captures.len(), 1);
        assert_eq!(case.steps[3].options.until, [Until::Code(404)]);
        assert!(case.needs == Needs::Nothing && !case.runs_alone());
    }

    #[test]
    fn a_patch_is_named_by_its_kind() {
        let case = parse("a/b", "# x\nSTRATEGIC /x\n  a: 1\n").unwrap();
        let Action::Request {
            method, content_type, ..
        } = &case.steps[0].action
        else {
            panic!("not a request")
        };
        assert_eq!(
            (*method, *content_type),
            ("PATCH", "application/strategic-merge-patch+json")
        );
    }

    #[test]
    fn mistakes_are_told_with_their_line() {
        assert!(parse("a/b", "GET /x\n").unwrap_err().contains("what is it about"));
        assert!(parse("a/b", "# x\n").unwrap_err().contains("no step"));
        assert!(
            parse("a/b", "# x\nGET /x\nfoo\n")
                .unwrap_err()
                .starts_with("a/b.case:3")
        );
        assert!(parse("a/b", "# x\nGET /x y\n").is_err());
        assert!(parse("a/b", "# x\n    body: 1\n").is_err());
        assert!(parse("a/b", "# x\nEVENTS w two\n").is_err());
    }

    #[test]
    fn compaction_and_nodes_beside_a_scheduler_are_not_for_company() {
        let alone = |text| parse("a/b", text).unwrap().runs_alone();
        assert!(alone("# x\nCOMPACT\n"));
        assert!(alone("# x\nscheduler: true\nGET /x\n"));
        assert!(alone("# x\ncontrollers: true\nPOST /api/v1/nodes\n"));
        assert!(!alone("# x\nPOST /api/v1/nodes\n"));
        assert!(!alone("# x\ncontrollers: true\nGET /x\n"));
    }

    #[test]
    fn what_is_dropped_above_is_dropped_in_every_step() {
        let case = parse("a/b", "# x\ncontrollers: true\ndrop ..a\nGET /x\nGET /y\ndrop .b\n").unwrap();
        let dropped = |step: usize| case.steps[step].options.drop.iter().map(Path::text).collect::<Vec<_>>();
        assert_eq!((dropped(0), dropped(1)), (vec!["..a"], vec![".b", "..a"]));
    }
}

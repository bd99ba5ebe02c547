//! What is to be done with a collection, an object or a subresource.

use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use http::request::Parts;
use http_body::Body;
use serde_json::{Value, json};

use crate::api::answer::Answer;
use crate::api::body;
use crate::api::discovery::subresources::{ResponseKind, response_kind};
use crate::api::negotiate::{Format, Representation, Shape, content_type, representation, unsupported};
use crate::api::protobuf::BodyType;
use crate::api::query::{Query, check_manager, invalid};
use crate::api::route::Place;
use crate::api::table::{self, IncludeObject, ListMeta, Wanted};
use crate::api::watch::WatchLines;
use crate::api::{Server, documents};
use crate::caller::Caller;
use crate::fault::{Fault, FieldError, Path, Subject};
use crate::registry::ask::{Ask, Outcome, Parsed, Target};
use crate::registry::row::Columns;
use crate::registry::{Patch, Registry, object};
use crate::schema::jsonpath;

const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";
const APPLY_PATCH: &str = "application/apply-patch+yaml";

/// A request about a kind's objects.
pub(super) struct Call<'a> {
    pub(super) server: &'a Arc<Server>,
    pub(super) parts: &'a Parts,
    pub(super) place: Place<'a>,
    pub(super) query: Query,
    pub(super) caller: Caller,
}

impl Call<'_> {
    pub(super) fn registry(&self) -> &Arc<Registry> {
        &self.server.registry
    }

    pub(super) async fn answer<B>(self, body: B) -> Result<Answer, Fault>
    where
        B: Body<Data = Bytes> + Send,
        B::Error: std::fmt::Display,
    {
        let target = self.target()?;
        let answer = self.dispatch(&target, body).await;
        let Some(warning) = &target.version.deprecated else {
            return answer;
        };
        let warnings = vec![warning.to_string()];
        match answer {
            Ok(answer) => Ok(answer.with_warnings(warnings)),
            Err(fault) => Err(fault.with_warnings(warnings)),
        }
    }

    async fn dispatch<B>(&self, target: &Target, body: B) -> Result<Answer, Fault>
    where
        B: Body<Data = Bytes> + Send,
        B::Error: std::fmt::Display,
    {
        let is_collection = target.name.is_empty();
        let row = &target.resource.row;
        if row.verbs == ["create"] && self.parts.method != Method::POST {
            return Err(self.not_allowed());
        }
        match (&self.parts.method, target.subresource.as_deref()) {
            (&Method::GET, None) if self.place.is_watch => self.watch(target),
            (&Method::GET | &Method::HEAD, None | Some("status")) if !is_collection => self.get(target),
            (&Method::GET, None) if self.query.is_watch() => self.watch(target),
            (&Method::GET, None) => self.list(target),
            (&Method::POST, None) if is_collection => self.create(target, body).await,
            (&Method::PUT, None | Some("status" | "finalize")) if !is_collection => self.replace(target, body).await,
            (&Method::PATCH, None | Some("status")) if !is_collection => self.patch(target, body).await,
            (&Method::DELETE, None) if is_collection && row.verbs.contains(&"deletecollection") => {
                self.delete_collection(target, body).await
            }
            (&Method::DELETE, None) if !is_collection => self.delete(target, body).await,
            (&Method::GET, Some("log")) => self.log(target).await,
            (&Method::GET | &Method::POST, Some("exec")) => self.exec(target),
            (&Method::GET | &Method::POST, Some("attach" | "portforward")) => Err(self.not_served(target)?),
            (&Method::GET, Some("scale")) => {
                let asked = self.representation(true)?;
                let scale = self.registry().get_scale(target)?;
                self.shaped(200, &crate::kinds::scale_columns(), scale, asked)
            }
            (&Method::PUT, Some("scale")) => {
                self.check_readable(false)?;
                let ask = self.ask("UpdateOptions")?;
                let parsed = self.read(target, body).await?;
                let outcome = self.registry().replace_scale(target, &ask, &parsed.value).await?;
                self.outcome(200, outcome)
            }
            (&Method::PATCH, Some("scale")) => {
                self.check_readable(false)?;
                let patch = self.patch_body(target, body).await?;
                let ask = self.ask("PatchOptions")?;
                let outcome = self.registry().patch_scale(target, &ask, &patch).await?;
                self.outcome(200, outcome)
            }
            (&Method::POST, Some(subresource)) => {
                let ask = self.ask("CreateOptions")?;
                let parsed = self.read(target, body).await?;
                self.post_subresource(target, subresource, &ask, parsed.value).await
            }
            _ => Err(self.not_allowed()),
        }
    }

    /// What the path names, if it is served.
    fn target(&self) -> Result<Target, Fault> {
        let place = &self.place;
        let catalog = self.registry().catalog();
        if !catalog.has_version(place.group, place.version) {
            return Err(documents::no_such_path());
        }
        let nothing = || {
            if catalog.is_built_in(place.group) {
                documents::nothing_there()
            } else {
                documents::no_such_path()
            }
        };
        let resource = catalog.find(place.group, place.resource).ok_or_else(nothing)?;
        let version = resource.version(place.version).ok_or_else(nothing)?;
        let is_namespaced = resource.row.namespaced;
        if place.namespace.is_some() && !is_namespaced {
            return Err(nothing());
        }
        // All namespaces can be listed and watched, and reviews are made anywhere.
        if place.namespace.is_none() && is_namespaced && (!place.name.is_empty() || self.parts.method == Method::POST) {
            return Err(nothing());
        }
        let is_pod = place.group.is_empty() && place.resource == "pods";
        // Not served, and refused with a sentence.
        let is_known = is_pod && matches!(place.subresource, "attach" | "portforward");
        let is_served = || crate::kinds::has_subresource(&resource.row, version, place.subresource);
        if !place.subresource.is_empty() && !is_known && !is_served() {
            return Err(
                if resource.is_custom() && matches!(place.subresource, "status" | "scale") {
                    Fault::not_found(&resource.row.resource(), place.name)
                } else {
                    nothing()
                },
            );
        }
        Ok(Target {
            version: version.clone(),
            resource: resource.clone(),
            namespace: place.namespace.map(str::to_owned),
            name: place.name.to_owned(),
            subresource: (!place.subresource.is_empty()).then(|| place.subresource.to_owned()),
        })
    }

    fn not_allowed(&self) -> Fault {
        Fault::new(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )
        .about(
            &Subject {
                group: String::new(),
                kind: String::new(),
            },
            "",
        )
    }

    fn representation(&self, transforms: bool) -> Result<Representation, Fault> {
        representation(&self.parts.headers, self.is_pretty(), transforms)
    }

    /// Before anything is written: what the client cannot read is not done.
    fn check_readable(&self, transforms: bool) -> Result<(), Fault> {
        let asked = self.representation(transforms)?;
        if matches!(asked.shape, Shape::Table(_)) {
            self.include()?;
        }
        Ok(())
    }

    /// People at a browser or curl are shown indents.
    fn is_pretty(&self) -> bool {
        self.query.flag("pretty")
    }

    fn include(&self) -> Result<IncludeObject, Fault> {
        IncludeObject::parse(self.query.get("includeObject"))
    }

    fn get(&self, target: &Target) -> Result<Answer, Fault> {
        let asked = self.representation(true)?;
        let entry = self.registry().get(target, self.query.get("resourceVersion"))?;
        if asked.shape == Shape::Object && Registry::is_plain(&target.resource, &target.version.name, entry.revision) {
            return Ok(Answer::stored(200, &entry.value, entry.revision, asked.format));
        }
        let object = self
            .registry()
            .present(&target.resource, &target.version.name, &entry.value, entry.revision)?;
        self.shaped(200, &target.version.columns, object, asked)
    }

    /// One object in the shape asked for.
    fn shaped(&self, code: u16, columns: &Columns, object: Value, asked: Representation) -> Result<Answer, Fault> {
        let value = match asked.shape {
            Shape::Object => object,
            Shape::Metadata(version) => table::partial(object, version),
            Shape::Table(version) => {
                let wanted = Wanted {
                    version,
                    include: self.include()?,
                    definitions: true,
                    now: self.registry().clock.now(),
                };
                table::table_of_one(columns, object, wanted, &|object, path| {
                    jsonpath::evaluate(object, path)
                })
            }
        };
        Ok(Answer::value(code, &value, asked.format))
    }

    fn list(&self, target: &Target) -> Result<Answer, Fault> {
        let asked = self.representation(true)?;
        let options = self.query.list_options()?;
        let listed = self.registry().list(target, &options)?;
        match asked.shape {
            Shape::Object => Ok(Answer::json(200, self.list_bytes(target, &listed)?, asked.format)),
            shape => {
                let meta = ListMeta {
                    resource_version: listed.revision.to_string(),
                    continue_token: (!listed.token.is_empty()).then(|| listed.token.clone()),
                    remaining: listed.remaining.map(|count| count as u64),
                };
                let objects = listed
                    .entries
                    .iter()
                    .map(|entry| {
                        self.registry()
                            .present(&target.resource, &target.version.name, &entry.value, entry.revision)
                    })
                    .collect::<Result<Vec<_>, _>>()?;
                let value = match shape {
                    Shape::Table(version) => {
                        let wanted = Wanted {
                            version,
                            include: self.include()?,
                            definitions: true,
                            now: self.registry().clock.now(),
                        };
                        table::table(&target.version.columns, objects, meta, wanted, &|object, path| {
                            jsonpath::evaluate(object, path)
                        })
                    }
                    Shape::Metadata(version) => table::partial_list(objects, meta, version),
                    // Written above, from the stored bytes.
                    Shape::Object => Value::Null,
                };
                Ok(Answer::value(200, &value, asked.format))
            }
        }
    }

    fn watch(&self, target: &Target) -> Result<Answer, Fault> {
        let asked = self.representation(true)?;
        let mut options = self.query.watch_options()?;
        if !target.name.is_empty() {
            options.selection.fields.require_name(&target.name);
        }
        let watch = self.registry().watch(target, &options)?;
        let lines = WatchLines::new(self.registry().clone(), watch, target.clone(), asked, self.include()?);
        Ok(Answer::watch(lines))
    }

    async fn read<B>(&self, target: &Target, body: B) -> Result<Parsed, Fault>
    where
        B: Body<Data = Bytes> + Send,
        B::Error: std::fmt::Display,
    {
        let bytes = body::read(body).await?;
        let row = &target.resource.row;
        let (group, version, kind) = match target.subresource.as_deref().map(response_kind) {
            Some(ResponseKind::Of { group, version, kind }) => (group, version, kind),
            Some(ResponseKind::Beside(kind)) => (&*row.group, &*target.version.name, kind),
            Some(ResponseKind::Own) | None => (&*row.group, &*target.version.name, &*row.kind),
        };
        let media = content_type(&self.parts.headers);
        // Only built-in kinds have a form in protobuf.
        if target.resource.is_custom() && kind == &*row.kind && media == body::PROTOBUF {
            return Err(unsupported(&["application/json", "application/yaml"]));
        }
        let expected = BodyType { group, version, kind };
        let mut parsed = body::parse(&bytes, media, expected)?;
        if kind != &*row.kind {
            body::settle(&mut parsed.value, expected)?;
        }
        Ok(parsed)
    }

    /// Who asks for a write, and how. `options` names the kind of its options.
    fn ask(&self, options: &str) -> Result<Ask, Fault> {
        let manager = self.query.get("fieldManager");
        check_manager(manager, options)?;
        let agent = self
            .parts
            .headers
            .get(http::header::USER_AGENT)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        let manager = if manager.is_empty() {
            let name = agent.split('/').next().unwrap_or_default();
            if name.is_empty() { "unknown" } else { name }
        } else {
            manager
        };
        Ok(Ask {
            caller: self.caller.clone(),
            dry_run: self.query.dry_run(options)?,
            validation: self.query.validation(options)?,
            options: self.query.options(options),
            ..Ask::internal(manager)
        })
    }

    async fn create<B>(&self, target: &Target, body: B) -> Result<Answer, Fault>
    where
        B: Body<Data = Bytes> + Send,
        B::Error: std::fmt::Display,
    {
        self.check_readable(true)?;
        let ask = self.ask("CreateOptions")?;
        let parsed = self.read(target, body).await?;
        let mut warnings = Vec::new();
        let object = match Registry::decode(target, parsed, &ask, &mut warnings) {
            Ok(object) => object,
            Err(fault) => return Err(fault.with_warnings(warnings)),
        };
        if target.resource.row.verbs == ["create"] {
            let reviewed = self.server.review(target, object, &ask, &self.caller)?;
            return Ok(Answer::value(201, &reviewed, self.representation(false)?.format).with_warnings(warnings));
        }
        let outcome = self.registry().create(target, &ask, object, warnings).await?;
        let name = object::name(&outcome.object).to_owned();
        Ok(self.written(target, &ask, 201, outcome).await?.with_name(name))
    }

    async fn replace<B>(&self, target: &Target, body: B) -> Result<Answer, Fault>
    where
        B: Body<Data = Bytes> + Send,
        B::Error: std::fmt::Display,
    {
        self.check_readable(true)?;
        let ask = self.ask("UpdateOptions")?;
        let parsed = self.read(target, body).await?;
        let outcome = self.registry().replace(target, &ask, parsed).await?;
        let code = if outcome.created { 201 } else { 200 };
        self.written(target, &ask, code, outcome).await
    }

    async fn patch<B>(&self, target: &Target, body: B) -> Result<Answer, Fault>
    where
        B: Body<Data = Bytes> + Send,
        B::Error: std::fmt::Display,
    {
        let patch = self.patch_body(target, body).await?;
        let ask = self.ask("PatchOptions")?;
        let outcome = self.registry().patch(target, &ask, &patch).await?;
        let code = if outcome.created { 201 } else { 200 };
        self.written(target, &ask, code, outcome).await
    }

    /// An apply says who applies; only an apply may be forced.
    fn check_patch(&self, patch: &Patch) -> Result<(), Fault> {
        let error = match patch {
            Patch::Apply { .. } if self.query.get("fieldManager").is_empty() => {
                FieldError::required(&Path::new("fieldManager"), "is required for apply patch")
            }
            Patch::Json(_) | Patch::Merge(_) | Patch::Strategic(_) if !self.query.get("force").is_empty() => {
                FieldError::forbidden(&Path::new("force"), "may not be specified for non-apply patch")
            }
            _ => return Ok(()),
        };
        Err(invalid("PatchOptions", &error))
    }

    async fn patch_body<B>(&self, target: &Target, body: B) -> Result<Patch, Fault>
    where
        B: Body<Data = Bytes> + Send,
        B::Error: std::fmt::Display,
    {
        let media = content_type(&self.parts.headers);
        let is_custom = target.resource.is_custom();
        let accepted: &[&str] = if is_custom {
            &[JSON_PATCH, MERGE_PATCH, APPLY_PATCH]
        } else {
            &[JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH]
        };
        if ![JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH].contains(&media) {
            let mut fault = Fault::new(415, "UnsupportedMediaType", "415: Unsupported Media Type");
            fault.details = Some(serde_json::Map::new());
            return Err(fault);
        }
        if !accepted.contains(&media) {
            return Err(unsupported(accepted));
        }
        self.check_readable(true)?;
        let bytes = body::read(body).await?;
        let json = |bytes: &[u8]| -> Result<Value, Fault> {
            serde_json::from_slice(bytes)
                .map_err(|why| Fault::bad_request(format!("error decoding patch: {}", body::json_error(bytes, &why))))
        };
        let patch = match media {
            JSON_PATCH => Patch::Json(json(&bytes)?),
            MERGE_PATCH => Patch::Merge(json(&bytes)?),
            STRATEGIC_PATCH => Patch::Strategic(json(&bytes)?),
            _ => Patch::Apply {
                applied: body::parse_yaml(&bytes)?,
                force: self.query.flag("force"),
            },
        };
        self.check_patch(&patch)?;
        Ok(patch)
    }

    async fn delete<B>(&self, target: &Target, body: B) -> Result<Answer, Fault>
    where
        B: Body<Data = Bytes> + Send,
        B::Error: std::fmt::Display,
    {
        self.check_readable(true)?;
        let (ask, options) = self.delete_ask(body).await?;
        self.registry().admit_named_delete(target)?;
        let outcome = self.registry().delete(target, &ask, &options).await?;
        let value = Registry::deletion_answer(target, &outcome);
        if !ask.dry_run {
            self.registry().after_write(target, &outcome).await;
        }
        let asked = self.representation(true)?;
        let warnings = outcome.warnings;
        // A Status stays what it is in every shape.
        if value.get("kind").and_then(Value::as_str) == Some("Status") {
            return Ok(Answer::value(200, &value, asked.format).with_warnings(warnings));
        }
        Ok(self
            .shaped(200, &target.version.columns, value, asked)?
            .with_warnings(warnings))
    }

    async fn delete_collection<B>(&self, target: &Target, body: B) -> Result<Answer, Fault>
    where
        B: Body<Data = Bytes> + Send,
        B::Error: std::fmt::Display,
    {
        self.check_readable(false)?;
        let (ask, options) = self.delete_ask(body).await?;
        let list = self.query.list_options()?;
        let revision = self.registry().store.revision();
        let mut items = self.registry().delete_collection(target, &ask, &options, &list).await?;
        for item in items.iter().filter(|_| target.is_definition() && !ask.dry_run) {
            self.registry().after_definition(target, object::name(item)).await?;
        }
        if !target.resource.is_custom() {
            for item in &mut items {
                let map = object::as_map(item);
                map.remove("apiVersion");
                map.remove("kind");
            }
        }
        let mut list = json!({
            "kind": &*target.resource.row.list_kind, "apiVersion": target.api_version(),
            "metadata": {"resourceVersion": revision.to_string()}, "items": items,
        });
        // As strange as it is.
        if target.resource.is_custom() {
            object::set_at(&mut list, "metadata.continue", "".into());
        }
        Ok(Answer::value(200, &list, self.representation(false)?.format))
    }

    async fn delete_ask<B>(&self, body: B) -> Result<(Ask, crate::registry::DeleteOptions), Fault>
    where
        B: Body<Data = Bytes> + Send,
        B::Error: std::fmt::Display,
    {
        let bytes = body::read(body).await?;
        let parsed = if bytes.is_empty() {
            None
        } else {
            Some(body::parse(&bytes, content_type(&self.parts.headers), BodyType::DELETE_OPTIONS)?.value)
        };
        let options = self.query.delete_options(parsed)?;
        options.check()?;
        let ask = Ask {
            dry_run: options.is_dry_run(),
            options: options.raw.clone(),
            ..self.ask("DeleteOptions")?
        };
        Ok((ask, options))
    }

    async fn post_subresource(
        &self,
        target: &Target,
        subresource: &str,
        ask: &Ask,
        body: Value,
    ) -> Result<Answer, Fault> {
        let format = self.representation(false)?.format;
        let mut warnings = Vec::new();
        let value = match subresource {
            "token" => self.server.token(target, ask, body),
            "binding" => self.registry().bind(target, ask, body, &mut warnings).await,
            "eviction" => self.registry().evict(target, ask, body, &mut warnings).await,
            _ => Err(self.not_allowed()),
        };
        match value {
            Ok(value) => Ok(Answer::value(201, &value, format).with_warnings(warnings)),
            Err(fault) => Err(fault.with_warnings(warnings)),
        }
    }

    async fn written(&self, target: &Target, ask: &Ask, code: u16, outcome: Outcome) -> Result<Answer, Fault> {
        if !ask.dry_run {
            self.registry().after_write(target, &outcome).await;
        }
        let asked = self.representation(true)?;
        let warnings = outcome.warnings;
        if let Some((value, revision)) = &outcome.stored
            && asked.shape == Shape::Object
            && Registry::is_plain(&target.resource, &target.version.name, *revision)
        {
            return Ok(Answer::stored(code, value, *revision, asked.format).with_warnings(warnings));
        }
        Ok(self
            .shaped(code, &target.version.columns, outcome.object, asked)?
            .with_warnings(warnings))
    }

    fn outcome(&self, code: u16, outcome: Outcome) -> Result<Answer, Fault> {
        let format: Format = self.representation(false)?.format;
        Ok(Answer::value(code, &outcome.object, format).with_warnings(outcome.warnings))
    }
}

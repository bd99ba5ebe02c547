//! The HTTP surface: what is answered to whom, in which representation.
//!
//! [`ApiService`] is a `tower::Service`: `kube::Client` sits on it in process, the listener over TLS. A request goes
//! through [`route`] (what is it about), [`negotiate`] (what can the client read), [`verbs`] (what is to be done) and
//! [`answer`] (how it is written).

mod answer;
mod body;
pub mod discovery;
mod documents;
mod lists;
mod negotiate;
pub mod openapi;
mod protobuf;
mod query;
mod reviews;
pub(crate) mod route;
pub mod table;
mod twice;
mod verbs;
mod watch;

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body::Body;

pub use body::ApiBody;
pub(crate) use body::summary as body_summary;
pub(crate) use twice::keys as duplicate_keys;
pub(crate) use twice::there_are_some as has_duplicate_keys;

use crate::api::answer::Answer;
pub(crate) use crate::api::documents::Documents;
use crate::api::query::Query;
use crate::api::route::Route;
use crate::caller::Caller;
use crate::fault::Fault;
use crate::registry::Registry;
use crate::security::Security;
use crate::serve::audit::{Answered, Audit};

/// What all requests share.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) registry: Arc<Registry>,
    pub(crate) security: Arc<Security>,
    pub(crate) documents: Documents,
    pub(crate) openapi: openapi::Documents,
    pub(crate) audit: Option<Audit>,
    /// Why the controllers have stopped, if they did so by themselves.
    pub(crate) controllers_failed: OnceLock<String>,
}

/// Who asked, for the audit log.
#[derive(Debug, Default)]
struct Asker {
    caller: Option<Caller>,
    acting_as: Option<Caller>,
}

/// The API. Clones are the same server.
#[derive(Debug, Clone)]
pub struct ApiService {
    server: Arc<Server>,
    /// Who asks, where that needs no proof: an in-process client.
    trusted: Option<Caller>,
}

impl ApiService {
    /// For clients in this process, who are the admin.
    pub(crate) fn trusted(server: Arc<Server>) -> Self {
        Self {
            server,
            trusted: Some(Caller::admin()),
        }
    }

    /// For clients that must say who they are.
    pub(crate) fn guarded(server: Arc<Server>) -> Self {
        Self { server, trusted: None }
    }

    /// Answers a request. In memory everything but a watch's lines is there at the first poll (E2).
    pub async fn answer<B>(self, request: Request<B>) -> Response<ApiBody>
    where
        B: Body<Data = Bytes> + Send,
        B::Error: std::fmt::Display,
    {
        let (parts, body) = request.into_parts();
        let audit_id = self.server.registry.dice.audit_id();
        let mut asker = Asker::default();
        let Some(audit) = &self.server.audit else {
            let answer = match self.handle(&parts, body, &mut asker).await {
                Ok(answer) => answer,
                Err(fault) => Answer::fault(&fault, &parts.headers),
            };
            return answer.into_response(&parts, &audit_id);
        };
        let received = self.server.registry.clock.now();
        let (answer, name) = match self.handle(&parts, body, &mut asker).await {
            Ok(mut answer) => {
                let name = answer.take_name();
                (answer, name)
            }
            Err(fault) => {
                let name = fault.details.as_ref().and_then(|details| details.get("name")?.as_str());
                (Answer::fault(&fault, &parts.headers), name.map(str::to_owned))
            }
        };
        audit.note(&Answered {
            id: &audit_id,
            path: &percent_decoded(parts.uri.path()).unwrap_or_default(),
            is_watch: Query::parse(parts.uri.query().unwrap_or_default()).is_watch(),
            parts: &parts,
            caller: asker.caller.as_ref(),
            acting_as: asker.acting_as.as_ref(),
            name: name.as_deref(),
            code: answer.code(),
            received,
            answered: self.server.registry.clock.now(),
        });
        answer.into_response(&parts, &audit_id)
    }

    async fn handle<B>(&self, parts: &http::request::Parts, body: B, asker: &mut Asker) -> Result<Answer, Fault>
    where
        B: Body<Data = Bytes> + Send,
        B::Error: std::fmt::Display,
    {
        let path = percent_decoded(parts.uri.path())?;
        let route = Route::parse(&path);
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let caller = match &self.trusted {
            Some(caller) => caller.clone(),
            None => {
                self.server.security.check_origin(&parts.headers, &parts.uri)?;
                match self
                    .server
                    .security
                    .caller(&parts.headers, self.server.registry.clock.now())
                {
                    Ok(proven) if self.server.is_alive(&proven) => proven.caller,
                    Ok(_) if !matches!(route, Route::Health(_) | Route::Version) => {
                        return Err(Fault::new(401, "Unauthorized", "Unauthorized"));
                    }
                    // Whether it runs, and what it is, anybody may ask.
                    Ok(_) => Caller::anonymous(),
                    Err(_) if matches!(route, Route::Health(_) | Route::Version) => Caller::anonymous(),
                    Err(fault) => return Err(fault),
                }
            }
        };
        let is_audited = self.server.audit.is_some();
        asker.caller = is_audited.then(|| caller.clone());
        let caller = match self.server.security.impersonated(&caller, &parts.headers)? {
            Some(other) => {
                asker.acting_as = is_audited.then(|| other.clone());
                other
            }
            None => caller,
        };
        match route {
            Route::Resource(place) => {
                let call = verbs::Call {
                    server: &self.server,
                    parts,
                    place,
                    query,
                    caller,
                };
                call.answer(body).await
            }
            _ if parts.method != Method::GET && parts.method != Method::HEAD => Err(Fault::new(
                405,
                "MethodNotAllowed",
                "the server does not allow this method on the requested resource",
            )),
            route => self.server.document(&route, parts, &query),
        }
    }
}

/// What is answered when the server itself failed.
pub(crate) fn panicked() -> Response<ApiBody> {
    let fault = Fault::internal("the server failed in the middle of this request; see its log");
    let mut response = Response::new(ApiBody::whole(fault.status().to_string()));
    *response.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR;
    response.headers_mut().insert(
        http::header::CONTENT_TYPE,
        http::HeaderValue::from_static("application/json"),
    );
    response
}

impl<B> tower::Service<Request<B>> for ApiService
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: std::fmt::Display,
{
    type Response = Response<ApiBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move { Ok(service.answer(request).await) })
    }
}

/// A path with its escapes resolved. An escaped slash would change what the path names.
fn percent_decoded(path: &str) -> Result<String, Fault> {
    if !path.contains('%') {
        return Ok(path.to_owned());
    }
    let wrong = || Fault::bad_request("the path has escapes that are not valid");
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes().iter().copied();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|byte| char::from(byte).to_digit(16));
        let (high, low) = (digit().ok_or_else(wrong)?, digit().ok_or_else(wrong)?);
        let decoded = u8::try_from(high * 16 + low).map_err(|_| wrong())?;
        if decoded == b'/' || decoded == 0 {
            return Err(wrong());
        }
        bytes.push(decoded);
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

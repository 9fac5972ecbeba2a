//! One event, and its forms: a JSON document, and upstream's old line of text.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;

use jiff::Timestamp;
use serde_json::Value;

use super::{Level, Stage};
use crate::field::quote;
use crate::time::{Precision, Time};

/// How an event begins that stands alone. In a list it begins after this, with a brace.
pub const LINE_HEAD: &str = "{\"kind\":\"Event\",\"apiVersion\":\"audit.k8s.io/v1\",";
/// The most that is kept of a client's `User-Agent`.
const USER_AGENT_MAX: usize = 1024;
const TRUNCATED: &str = "...TRUNCATED";

/// What is known of a request at one of its stages.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    pub level: Level,
    pub audit_id: &'a str,
    pub stage: Stage,
    pub request_uri: &'a str,
    pub verb: &'a str,
    /// None for somebody whose proof failed.
    pub user: Option<Person<'a>>,
    pub impersonated: Option<Person<'a>>,
    pub source_ips: &'a [IpAddr],
    pub user_agent: &'a str,
    pub object: Option<ObjectRef<'a>>,
    pub code: Option<Code<'a>>,
    /// JSON.
    pub request: Option<&'a [u8]>,
    /// JSON.
    pub response: Option<&'a [u8]>,
    pub received: Timestamp,
    pub reached: Timestamp,
    pub annotations: &'a BTreeMap<String, String>,
}

#[derive(Clone, Copy, Debug)]
pub struct Person<'a> {
    pub name: &'a str,
    pub uid: &'a str,
    pub groups: &'a [String],
    pub extra: &'a [(String, Vec<String>)],
}

#[derive(Clone, Copy, Debug, Default)]
pub struct ObjectRef<'a> {
    pub resource: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
    pub uid: &'a str,
    pub group: &'a str,
    pub version: &'a str,
    pub resource_version: &'a str,
    pub subresource: &'a str,
}

/// How a request ended.
#[derive(Clone, Copy, Debug)]
pub struct Code<'a> {
    pub code: u16,
    /// The Status that was answered, if one was.
    pub status: Option<&'a Value>,
}

/// As much of a `User-Agent` as events show, and whether that is all.
pub fn shown_user_agent(agent: &str) -> String {
    if agent.len() <= USER_AGENT_MAX {
        return agent.to_owned();
    }
    let end = agent.floor_char_boundary(USER_AGENT_MAX);
    format!("{}{TRUNCATED}", &agent[..end])
}

impl Event<'_> {
    /// The event as a line of JSON, its end included.
    pub fn to_line(&self) -> Vec<u8> {
        let bodies = self.request.map_or(0, <[u8]>::len) + self.response.map_or(0, <[u8]>::len);
        let mut out = Vec::with_capacity(1024 + bodies);
        out.extend_from_slice(LINE_HEAD.as_bytes());
        let mut fields = Fields::following(&mut out);
        fields.text("level", self.level.as_str());
        fields.text("auditID", self.audit_id);
        fields.text("stage", self.stage.as_str());
        fields.text("requestURI", self.request_uri);
        fields.text("verb", self.verb);
        fields.raw("user", |out| match &self.user {
            Some(user) => user.write(out),
            None => out.extend_from_slice(b"{}"),
        });
        if let Some(user) = &self.impersonated {
            fields.raw("impersonatedUser", |out| user.write(out));
        }
        if !self.source_ips.is_empty() {
            fields.raw("sourceIPs", |out| {
                write_texts(out, self.source_ips.iter().map(ToString::to_string));
            });
        }
        fields.some("userAgent", self.user_agent);
        if let Some(object) = &self.object {
            fields.raw("objectRef", |out| object.write(out));
        }
        if let Some(code) = &self.code {
            fields.raw("responseStatus", |out| code.write(out));
        }
        for (name, body) in [("requestObject", self.request), ("responseObject", self.response)] {
            if let Some(body) = body {
                fields.raw(name, |out| out.extend_from_slice(body));
            }
        }
        fields.text("requestReceivedTimestamp", &micro(self.received));
        fields.text("stageTimestamp", &micro(self.reached));
        if !self.annotations.is_empty() {
            fields.raw("annotations", |out| {
                let mut annotations = Fields::opening(out);
                for (key, value) in self.annotations {
                    annotations.text(key, value);
                }
                annotations.close();
            });
        }
        fields.close();
        out.push(b'\n');
        out
    }

    /// The event as upstream's one line of text.
    pub fn to_legacy(&self) -> String {
        let listed = |groups: &[String]| {
            let quoted: Vec<String> = groups.iter().map(|group| quote(group)).collect();
            quoted.join(",")
        };
        let user = self.user.filter(|user| !user.name.is_empty());
        let groups = user.filter(|user| !user.groups.is_empty());
        let namespace = self.object.map(|object| object.namespace);
        let code = self.code.map(|code| code.code.to_string());
        let ip = self.source_ips.first().map(ToString::to_string);
        let parts = [
            ("id", self.audit_id.to_owned()),
            ("stage", self.stage.as_str().to_owned()),
            ("ip", ip.unwrap_or_else(|| "<unknown>".to_owned())),
            ("method", self.verb.to_owned()),
            ("user", user.map_or("<none>", |user| user.name).to_owned()),
            (
                "groups",
                groups.map_or_else(|| "<none>".to_owned(), |user| listed(user.groups)),
            ),
            ("as", self.impersonated.map_or("<self>", |user| user.name).to_owned()),
            (
                "asgroups",
                self.impersonated
                    .map_or_else(|| "<lookup>".to_owned(), |user| listed(user.groups)),
            ),
            ("user-agent", self.user_agent.to_owned()),
            (
                "namespace",
                namespace
                    .filter(|namespace| !namespace.is_empty())
                    .unwrap_or("<none>")
                    .to_owned(),
            ),
            ("uri", self.request_uri.to_owned()),
        ];
        let mut line = format!("{} AUDIT:", self.received);
        for (name, value) in parts {
            let _ = write!(line, " {name}={}", quote(&value));
        }
        let _ = writeln!(line, " response=\"{}\"", code.as_deref().unwrap_or("<deferred>"));
        line
    }
}

impl Person<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::opening(out);
        fields.some("username", self.name);
        fields.some("uid", self.uid);
        if !self.groups.is_empty() {
            fields.raw("groups", |out| write_texts(out, self.groups));
        }
        if !self.extra.is_empty() {
            fields.raw("extra", |out| {
                let mut extra = Fields::opening(out);
                for (key, values) in self.extra {
                    extra.raw(key, |out| write_texts(out, values));
                }
                extra.close();
            });
        }
        fields.close();
    }
}

impl ObjectRef<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::opening(out);
        fields.some("resource", self.resource);
        fields.some("namespace", self.namespace);
        fields.some("name", self.name);
        fields.some("uid", self.uid);
        fields.some("apiGroup", self.group);
        fields.some("apiVersion", self.version);
        fields.some("resourceVersion", self.resource_version);
        fields.some("subresource", self.subresource);
        fields.close();
    }
}

impl Code<'_> {
    /// Of a Status only what has a bound, and the code that was really sent.
    fn write(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::opening(out);
        fields.raw("metadata", |out| out.extend_from_slice(b"{}"));
        for name in ["status", "message", "reason"] {
            let text = self.status.and_then(|status| status.get(name)).and_then(Value::as_str);
            fields.some(name, text.unwrap_or_default());
        }
        if let Some(details) = self.status.and_then(|status| status.get("details")) {
            fields.raw("details", |out| write_json(out, details));
        }
        fields.raw("code", |out| write_json(out, &self.code));
        fields.close();
    }
}

/// A JSON object that is being written.
struct Fields<'o> {
    out: &'o mut Vec<u8>,
    first: bool,
}

impl<'o> Fields<'o> {
    fn opening(out: &'o mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, first: true }
    }

    /// One whose beginning is written, up to the comma.
    fn following(out: &'o mut Vec<u8>) -> Self {
        Self { out, first: true }
    }

    fn raw(&mut self, name: &str, value: impl FnOnce(&mut Vec<u8>)) {
        if !std::mem::take(&mut self.first) {
            self.out.push(b',');
        }
        write_json(self.out, &name);
        self.out.push(b':');
        value(self.out);
    }

    fn text(&mut self, name: &str, value: &str) {
        self.raw(name, |out| write_json(out, &value));
    }

    /// A text that is left out where it is empty.
    fn some(&mut self, name: &str, value: &str) {
        if !value.is_empty() {
            self.text(name, value);
        }
    }

    fn close(self) {
        self.out.push(b'}');
    }
}

fn write_texts<T: AsRef<str>>(out: &mut Vec<u8>, texts: impl IntoIterator<Item = T>) {
    out.push(b'[');
    for (i, text) in texts.into_iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        write_json(out, &text.as_ref());
    }
    out.push(b']');
}

fn write_json(out: &mut Vec<u8>, value: &impl serde::Serialize) {
    serde_json::to_writer(out, value).expect("plain values go into memory");
}

fn micro(time: Timestamp) -> String {
    let (seconds, nanos) = (time.as_second(), time.subsec_nanosecond());
    let time = Time::from_unix(seconds, nanos);
    time.map_or_else(String::new, |time| time.format(Precision::Micro))
}

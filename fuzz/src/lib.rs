//! Fuzz targets: one function for everything that reads bytes which somebody else wrote.
//!
//! Each takes any bytes, and panics if a promise is broken: a panic below it, an output out of all proportion, a value
//! that does not survive its round trip. `tests/corpus.rs` runs them over the committed corpus in `make test`; libFuzzer
//! runs them over what it thinks of in `make soak` (`scripts/fuzz`).
//!
//! An input of several parts separates them by a line `%%`, so that seeds can be written by hand.

mod codec;
mod kind;
mod managed;
mod patch;
mod schema;
mod server;
mod store;
mod text;
mod token;

use serde_json::Value;

/// Something that reads bytes.
#[derive(Clone, Copy)]
pub struct Target {
    /// Also the name of its folder in the corpus.
    pub name: &'static str,
    pub run: fn(&[u8]),
}

/// Every target.
pub const TARGETS: &[Target] = &[
    target("apply", managed::apply),
    target("authentication", token::authentication),
    target("cel", schema::cel),
    target("continue", server::continue_token),
    target("duration", text::duration),
    target("field_selector", text::field_selector),
    target("fields_v1", managed::fields_v1),
    target("json", codec::json),
    target("json_patch", patch::json_patch),
    target("json_path", schema::json_path),
    target("keys", token::keys),
    target("kind", kind::kind),
    target("label_selector", text::label_selector),
    target("log", store::log),
    target("merge_patch", patch::merge_patch),
    target("negotiate", server::negotiate),
    target("pattern", schema::pattern),
    target("pem", kind::pem),
    target("protobuf", codec::protobuf),
    target("quantity", text::quantity),
    target("request", server::request),
    target("schema", schema::schema),
    target("snapshot", server::snapshot),
    target("stored", store::stored),
    target("strategic_patch", patch::strategic_patch),
    target("time", text::time),
    target("url", server::url),
    target("yaml", codec::yaml),
];

const fn target(name: &'static str, run: fn(&[u8])) -> Target {
    Target { name, run }
}

/// The names of all targets.
pub fn names() -> Vec<&'static str> {
    TARGETS.iter().map(|target| target.name).collect()
}

/// What an answer may have beyond its proportion to the input.
const SLACK: usize = 4 << 20;

/// The parts of an input: what lies between lines of `%%`.
fn parts(data: &[u8]) -> Vec<&[u8]> {
    let mut parts = Vec::new();
    let mut rest = data;
    while let Some(at) = rest.windows(4).position(|bytes| bytes == b"\n%%\n") {
        parts.push(&rest[..at]);
        rest = &rest[at + 4..];
    }
    parts.push(rest);
    parts
}

/// The first line, and the rest.
fn line(data: &[u8]) -> (&str, &[u8]) {
    let end = data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len());
    let text = std::str::from_utf8(&data[..end]).unwrap_or_default();
    (text, data.get(end + 1..).unwrap_or_default())
}

/// Bytes as text: nothing below gets other bytes than through a decoder that has checked them.
fn text(data: &[u8]) -> Option<&str> {
    std::str::from_utf8(data).ok()
}

/// A part as the server would have decoded it.
fn json(data: &[u8]) -> Option<Value> {
    let decoded = mica_machinery::codec::decode_untyped(data);
    decoded.ok().map(|decoded| decoded.value)
}

/// The built-in kind that a text such as `apps/v1 Deployment` names; any other text stands for some kind too.
fn built_in(name: &str) -> &'static mica_machinery::facts::Kind {
    let facts = mica_machinery::facts::facts();
    let kinds = facts.kinds();
    let (version, kind) = name.trim().split_once(' ').unwrap_or_default();
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let known = kinds
        .iter()
        .find(|known| (known.group, known.version, known.kind) == (group, version, kind));
    known.unwrap_or_else(|| {
        let sum = name
            .bytes()
            .fold(0_usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        &kinds[sum % kinds.len()]
    })
}

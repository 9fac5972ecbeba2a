//! `Content-Type` of request bodies and of patches.

use super::{Format, Refusal, media_types};

/// How a create or update body is encoded. No header means JSON; parameters such as a charset are allowed and ignored.
pub fn body_format(content_type: &str) -> Result<Format, Refusal> {
    if content_type.is_empty() {
        return Ok(Format::Json);
    }
    media_type(content_type)
        .and_then(|media| Format::ALL.into_iter().find(|format| format.media_type() == media))
        .ok_or_else(|| Refusal::Unsupported(media_types()))
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PatchType {
    Json,
    Merge,
    Strategic,
    Apply,
}

impl PatchType {
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json-patch+json",
            Self::Merge => "application/merge-patch+json",
            Self::Strategic => "application/strategic-merge-patch+json",
            Self::Apply => "application/apply-patch+yaml",
        }
    }
}

const BUILT_IN: [PatchType; 4] = [
    PatchType::Json,
    PatchType::Merge,
    PatchType::Strategic,
    PatchType::Apply,
];
const CUSTOM: [PatchType; 3] = [PatchType::Json, PatchType::Merge, PatchType::Apply];

/// The kind of a patch to a built-in kind, which upstream's router checks, or to a custom resource, which has no strategic merge.
pub fn patch_type(content_type: &str, route: super::Route) -> Result<PatchType, Refusal> {
    let bare = content_type.split(';').next().unwrap_or_default();
    match route {
        super::Route::None => CUSTOM
            .into_iter()
            .find(|patch| patch.media_type() == bare)
            .ok_or_else(|| Refusal::Unsupported(CUSTOM.map(PatchType::media_type).join(", "))),
        _ => BUILT_IN
            .into_iter()
            .find(|patch| patch.media_type() == bare.trim_matches(' '))
            .ok_or(Refusal::UnsupportedRoute),
    }
}

/// The type and subtype, if the whole value is well-formed by the rules of Go's `mime.ParseMediaType`.
fn media_type(value: &str) -> Option<String> {
    let (media, mut params) = value.split_once(';').unwrap_or((value, ""));
    let mut names = Vec::new();
    loop {
        params = params.trim_start();
        if params.is_empty() {
            return Some(media.trim().to_ascii_lowercase());
        }
        let (name, after) = params.split_once('=')?;
        let name = name.trim().to_ascii_lowercase();
        if name.is_empty() || !name.bytes().all(is_token) || names.contains(&name) {
            return None;
        }
        names.push(name);
        params = after_value(after)?.trim_start();
        params = match params.strip_prefix(';') {
            Some(more) => more,
            None if params.is_empty() => "",
            None => return None,
        };
    }
}

/// What follows a parameter's value, a token or a quoted string.
fn after_value(text: &str) -> Option<&str> {
    if let Some(quoted) = text.strip_prefix('"') {
        let mut escaped = false;
        for (i, c) in quoted.char_indices() {
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => return Some(&quoted[i + 1..]),
                _ => {}
            }
        }
        return None;
    }
    let end = text.bytes().position(|b| !is_token(b)).unwrap_or(text.len());
    (end > 0).then(|| &text[end..])
}

fn is_token(b: u8) -> bool {
    b.is_ascii_graphic() && !b"()<>@,;:\\\"/[]?=".contains(&b)
}

//! Answers, judged as upstream's client judges them: which are good, and what is said about the others.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use mica_machinery::codec::text::quote;
use mica_machinery::{codec, object, yaml};
use tokio::time::Instant;

use super::failure::{BODY_TIMEOUT, CallError};
use super::pool::broken;

/// How much of an answer's text is repeated in an error.
const MAX_TEXT: usize = 2048;

/// A whole answer.
pub(super) struct Reply {
    status: StatusCode,
    content_type: Option<String>,
    /// The header that says when to ask again, in seconds.
    retry_after: Option<i64>,
    body: Bytes,
}

pub(super) async fn read(response: Response<Incoming>, max: usize, deadline: Instant) -> Result<Reply, CallError> {
    let (head, body) = response.into_parts();
    let collecting = collect(body, max);
    let body = tokio::time::timeout_at(deadline, collecting)
        .await
        .map_err(|_| CallError::Body(BODY_TIMEOUT.to_owned()))??;
    let content_type = head.headers.get(CONTENT_TYPE);
    let retry_after = head.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    Ok(Reply {
        status: head.status,
        retry_after: retry_after.and_then(|text| text.parse().ok()),
        content_type: content_type.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()),
        body,
    })
}

async fn collect(mut body: Incoming, max: usize) -> Result<Bytes, CallError> {
    let too_large = || CallError::Body(format!("the response is larger than {max} bytes"));
    if body.size_hint().lower() > max as u64 {
        return Err(too_large());
    }
    let mut data = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            let text = broken(&error);
            CallError::Body(if text == "EOF" {
                "unexpected EOF".to_owned()
            } else {
                text
            })
        })?;
        if let Some(chunk) = frame.data_ref() {
            if data.len() + chunk.len() > max {
                return Err(too_large());
            }
            data.extend_from_slice(chunk);
        }
    }
    Ok(data.freeze())
}

impl Reply {
    /// How long to wait before asking again, if that is what the answer says.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        let busy = self.status == StatusCode::TOO_MANY_REQUESTS || self.status.as_u16() >= 500;
        let seconds = self.retry_after.filter(|_| busy)?;
        Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
    }

    /// Whether the answer is a good one.
    pub(super) fn into_nothing(self) -> Result<(), CallError> {
        if self.status.is_success() {
            Ok(())
        } else {
            Err(CallError::Answer(self.refusal()))
        }
    }

    /// What a good answer holds.
    pub(super) fn into_document(self) -> Result<Bytes, CallError> {
        match self.status {
            StatusCode::OK => Ok(self.body),
            status => Err(CallError::Answer(status.to_string())),
        }
    }

    /// The JSON document of a good answer.
    pub(super) fn into_json(self) -> Result<Bytes, CallError> {
        if self
            .content_type
            .as_deref()
            .is_some_and(|text| media_type(text).is_empty())
        {
            let text = "Internal error occurred: mime: no media type";
            return Err(CallError::Answer(text.to_owned()));
        }
        if !(200..=206).contains(&self.status.as_u16()) {
            let code = self.status.as_u16();
            let text = self.refusal();
            return Err(CallError::Refused { code, text });
        }
        if self.body.is_empty() {
            let content_type = self.content_type.as_deref().unwrap_or("application/json");
            let text = format!(
                "0-length response with status code: {} and content type: {content_type}",
                self.status.as_u16()
            );
            return Err(CallError::Answer(text));
        }
        // Upstream's decoder takes what does not begin as an object for YAML.
        if self.body.trim_ascii_start().starts_with(b"{") {
            return Ok(self.body);
        }
        match yaml::to_json(&self.body) {
            Ok(converted) => Ok(converted.json.into()),
            Err(error) => Err(CallError::Answer(error.to_string())),
        }
    }

    /// What an answer that says no is reported as: the message of a Status if it is one, else a sentence about its code.
    fn refusal(&self) -> String {
        if let Some(message) = self.status_message() {
            return message;
        }
        let text = if self.is_text() {
            let shown = &self.body[..self.body.len().min(MAX_TEXT)];
            String::from_utf8_lossy(shown).trim().to_owned()
        } else {
            "unknown".to_owned()
        };
        sentence(self.status.as_u16(), text)
    }

    fn status_message(&self) -> Option<String> {
        let decoded = codec::decode_object(&self.body).ok()?.value;
        let is = |field: &str, wanted: &str| object::string(&decoded, &[field]) == wanted;
        let is_failure = is("kind", "Status") && is("apiVersion", "v1") && !is("status", "Success");
        is_failure.then(|| object::string(&decoded, &["message"]).to_owned())
    }

    fn is_text(&self) -> bool {
        let content_type = self.content_type.as_deref();
        content_type.is_none_or(|text| media_type(text).starts_with("text/"))
    }
}

fn media_type(content_type: &str) -> String {
    let media = content_type.split(';').next().unwrap_or_default();
    media.trim().to_ascii_lowercase()
}

/// Upstream's sentence about a code (`apimachinery/pkg/api/errors`, `NewGenericServerResponse`).
fn sentence(code: u16, text: String) -> String {
    match code {
        400 => "the server rejected our request for an unknown reason".to_owned(),
        401 => "the server has asked for the client to provide credentials".to_owned(),
        403 | 415 => text,
        404 => "the server could not find the requested resource".to_owned(),
        405 => "the server does not allow this method on the requested resource".to_owned(),
        406 if text.is_empty() || text == "unknown" => {
            "the server was unable to respond with a content type that the client supports".to_owned()
        }
        406 => text,
        409 => "the server reported a conflict".to_owned(),
        422 => "the server rejected our request due to an error in our request".to_owned(),
        429 => "the server has received too many requests and has asked us to try again later".to_owned(),
        503 => "the server is currently unable to handle the request".to_owned(),
        504 => concat!(
            "the server was unable to return a response in the time allotted, ",
            "but may still be processing the request"
        )
        .to_owned(),
        500.. => {
            let text = quote(&text);
            format!("an error on the server ({text}) has prevented the request from succeeding")
        }
        _ => format!("the server responded with the status code {code} but did not return more information"),
    }
}

//! Opening a plane that has arrived.

use http::{Response, StatusCode};
use mica_machinery::object;
use mica_machinery::select::text_at;
use mica_store::Revision;
use serde::Deserialize;
use serde_json::Value;

use super::arrive::{Arriving, MARGIN, interrupted};
use super::fill::{answer, change};
use crate::authz::Grant;
use crate::error::ApiError;
use crate::http::Body;
use crate::options::parse_version;
use crate::plane::{Arrival, State, Versions};
use crate::serve::Call;

#[derive(Default, Deserialize)]
#[serde(default)]
struct OpenRequest {
    /// The newest revision that the old server is known to have shown.
    revision: String,
    /// Which plane is meant, if it matters: one that was made under the same name meanwhile is not opened.
    uid: String,
    /// How far the plane has to have come, if it matters: no more and no less is opened.
    reached: String,
}

/// Opens a plane that has arrived: from now on it is here. Doing it again does nothing.
pub(crate) async fn open(call: &Call<'_>, grant: &Grant) -> Result<Response<Body>, ApiError> {
    let request: OpenRequest = match call.body.is_empty() {
        true => OpenRequest::default(),
        false => serde_json::from_slice(&call.body)
            .map_err(|error| ApiError::bad_request(format!("the body cannot be read: {error}")))?,
    };
    let shown = parse_version(&request.revision).map_err(|_| ApiError::bad_request("revision must be a revision"))?;
    let expected = parse_version(&request.reached).map_err(|_| ApiError::bad_request("reached must be a revision"))?;
    let (server, name) = (call.server, grant.target.object());
    server.directory.forget(name);
    let plane = server.directory.by_name(name).await?;
    let stored = server.registry.get(grant, "").await?;
    let uid = text_at(stored.json(), &["metadata", "uid"]).unwrap_or_default();
    if !request.uid.is_empty() && request.uid != uid {
        let why = format!("it is another of that name: its uid is {uid}");
        return Err(ApiError::conflict(&grant.target.served.name, name, &why));
    }
    if plane.state != State::Arriving && plane.arrival().is_some() {
        return answer(grant, &stored, StatusCode::OK);
    }
    let mut arriving = Arriving::find(server, grant).await?;
    let whole = arriving
        .progress
        .and_then(|progress| Some((progress, progress.copied_at?)));
    let Some((progress, copied_at)) = whole else {
        let why = "it is not whole: send a copy of it first";
        return Err(ApiError::conflict(&grant.target.served.name, name, why));
    };
    if expected.is_some_and(|expected| expected != progress.reached) {
        let why = format!("it has come to revision {}", progress.reached);
        return Err(ApiError::conflict(&grant.target.served.name, name, &why));
    }
    let beyond = progress.reached.max(shown.unwrap_or_default()).0.saturating_add(MARGIN);
    if progress.versions == Versions::Kept {
        arriving.advance(Revision(beyond)).await?;
    }
    // Whoever still sends is refused from now on.
    arriving.commit(Vec::new(), progress).await?;
    let opened = server.store.status().await?.revision;
    let birth = server.directory.birth_record(arriving.plane.id).await?;
    let arrival = Arrival {
        copied: progress.copied,
        copied_at,
        reached: progress.reached,
        opened,
        versions: progress.versions,
    };
    arriving.adopt(birth.arrived(arrival)).await?;
    let id = arriving.plane.id;
    let activate = |plane: &mut Value| {
        if object::string(plane, &["status", "id"]) == id.as_str() {
            object::set(plane, &["spec", "state"], "Active");
        }
    };
    let written = change(server, grant, &activate).await?;
    server.directory.forget(name);
    if server.directory.by_name(name).await?.id != id {
        return Err(interrupted(&arriving.plane));
    }
    answer(grant, &written.stored, StatusCode::CREATED)
}

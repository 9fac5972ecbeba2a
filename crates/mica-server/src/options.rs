//! The options of requests: read from queries and bodies, checked with upstream's words.

use mica_machinery::field::{Error, ErrorList, Path};
use mica_machinery::meta::{self, DeleteOptions};
use mica_machinery::select::{FieldSelector, LabelSelector};
use mica_store::Revision;
use serde_json::Value;

use crate::error::ApiError;
use crate::request::Query;

/// How a list's resourceVersion is meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Match {
    Exact,
    NotOlderThan,
    Unset,
}

/// Options of list, watch and deletecollection.
#[derive(Clone, Debug)]
pub struct ListOptions {
    pub label_selector: String,
    pub field_selector: String,
    /// As sent: it is parsed only where it is used, because list and watch answer a bad one differently.
    pub resource_version: String,
    pub version_match: Match,
    pub limit: u64,
    pub continue_token: String,
    pub timeout_seconds: Option<u64>,
    pub allow_bookmarks: bool,
    pub send_initial_events: Option<bool>,
}

/// Whether options are for a list or a watch: the rules differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ListUse {
    List,
    Watch,
}

impl ListOptions {
    pub fn read(query: &Query, use_: ListUse) -> Result<Self, ApiError> {
        let bad = |error: &dyn std::fmt::Display| ApiError::bad_request(error.to_string());
        LabelSelector::parse(query.text("labelSelector")).map_err(|error| bad(&error))?;
        FieldSelector::parse(query.text("fieldSelector")).map_err(|error| bad(&error))?;
        let mut version_match = query.text("resourceVersionMatch").to_owned();
        let mut send_initial_events = query.get("sendInitialEvents").map(|_| query.flag("sendInitialEvents"));
        let options = Self {
            label_selector: query.text("labelSelector").to_owned(),
            field_selector: query.text("fieldSelector").to_owned(),
            resource_version: query.text("resourceVersion").to_owned(),
            version_match: Match::Unset,
            limit: u64::try_from(query.int("limit")?.unwrap_or(0)).unwrap_or(0),
            continue_token: query.text("continue").to_owned(),
            timeout_seconds: query
                .int("timeoutSeconds")?
                .and_then(|seconds| u64::try_from(seconds).ok()),
            allow_bookmarks: query.flag("allowWatchBookmarks"),
            send_initial_events: None,
        };
        // A watch from "" or "0" has always begun with the present state: upstream spells that out before it checks.
        let from_now = matches!(options.resource_version.as_str(), "" | "0");
        if use_ == ListUse::Watch && send_initial_events.is_none() && version_match.is_empty() && from_now {
            send_initial_events = Some(true);
            "NotOlderThan".clone_into(&mut version_match);
        }
        let errors = match use_ {
            ListUse::List => options.list_errors(&version_match, send_initial_events),
            ListUse::Watch => options.watch_errors(&version_match, send_initial_events),
        };
        if !errors.is_empty() {
            return Err(ApiError::invalid_options("ListOptions", &errors));
        }
        let version_match = match version_match.as_str() {
            "Exact" => Match::Exact,
            "NotOlderThan" => Match::NotOlderThan,
            _ => Match::Unset,
        };
        // Upstream answers "whatever there is" from its cache, whole.
        let whole = use_ == ListUse::List && options.resource_version == "0" && options.continue_token.is_empty();
        Ok(Self {
            version_match,
            send_initial_events,
            limit: if whole { 0 } else { options.limit },
            ..options
        })
    }

    fn list_errors(&self, version_match: &str, send_initial_events: Option<bool>) -> ErrorList {
        let path = Path::new("resourceVersionMatch");
        let mut errors = ErrorList::new();
        if !version_match.is_empty() {
            if self.resource_version.is_empty() {
                errors.push(Error::forbidden(
                    &path,
                    "resourceVersionMatch is forbidden unless resourceVersion is provided",
                ));
            }
            if !self.continue_token.is_empty() {
                errors.push(Error::forbidden(
                    &path,
                    "resourceVersionMatch is forbidden when continue is provided",
                ));
            }
            if !matches!(version_match, "Exact" | "NotOlderThan") {
                errors.push(Error::not_supported(
                    &path,
                    version_match,
                    &["Exact", "NotOlderThan", ""],
                ));
            }
            if version_match == "Exact" && self.resource_version == "0" {
                errors.push(Error::forbidden(
                    &path,
                    "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
                ));
            }
        }
        if send_initial_events.is_some() {
            errors.push(Error::forbidden(
                &Path::new("sendInitialEvents"),
                "sendInitialEvents is forbidden for list",
            ));
        }
        errors
    }

    fn watch_errors(&self, version_match: &str, send_initial_events: Option<bool>) -> ErrorList {
        let path = Path::new("resourceVersionMatch");
        let mut errors = ErrorList::new();
        if send_initial_events.is_some() && version_match != "NotOlderThan" {
            errors.push(Error::forbidden(
                &path,
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            ));
        }
        if !version_match.is_empty() {
            if send_initial_events.is_none() {
                errors.push(Error::forbidden(
                    &path,
                    "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                ));
            }
            if version_match != "NotOlderThan" {
                errors.push(Error::not_supported(&path, version_match, &["NotOlderThan"]));
            }
            if !self.continue_token.is_empty() {
                errors.push(Error::forbidden(
                    &path,
                    "resourceVersionMatch is forbidden when continue is provided",
                ));
            }
        }
        errors
    }
}

/// Reads a resourceVersion. `None` for "" and "0", which mean "whatever there is".
pub fn parse_version(text: &str) -> Result<Option<Revision>, VersionError> {
    match text {
        "" | "0" => Ok(None),
        _ => match parse_uint(text) {
            Ok(0) => Ok(None),
            Ok(revision) => Ok(Some(Revision(revision))),
            Err(detail) => Err(VersionError {
                text: text.to_owned(),
                detail,
            }),
        },
    }
}

/// A number as Go's `strconv.ParseUint` reads it, with its words for what is none.
fn parse_uint(text: &str) -> Result<u64, String> {
    let quoted = mica_machinery::field::quote(text);
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!("strconv.ParseUint: parsing {quoted}: invalid syntax"));
    }
    text.parse()
        .map_err(|_| format!("strconv.ParseUint: parsing {quoted}: value out of range"))
}

/// A resourceVersion that is no number. What is answered depends on the verb.
#[derive(Debug)]
pub struct VersionError {
    text: String,
    detail: String,
}

impl VersionError {
    fn text(&self) -> String {
        Error::invalid(&Path::new("resourceVersion"), self.text.as_str(), self.detail.as_str()).to_string()
    }

    /// As get and watch answer.
    pub fn for_get(&self) -> ApiError {
        ApiError::internal_text(self.text())
    }

    /// As list answers.
    pub fn for_list(&self) -> ApiError {
        ApiError::bad_request(format!("invalid resource version: {}", self.text()))
    }

    /// As update answers.
    pub fn for_update(&self) -> ApiError {
        ApiError::internal_text(&self.detail)
    }
}

/// Whether a write is only tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DryRun {
    No,
    All,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

/// Options of create, update and patch.
#[derive(Clone, Debug)]
pub struct WriteOptions {
    pub dry_run: DryRun,
    /// Empty if the client named none.
    pub field_manager: String,
    pub field_validation: FieldValidation,
    /// How fields are to be validated, as the client put it; empty if it did not.
    pub asked_validation: String,
}

/// Which options these are: upstream names the kind in errors, and patches have one rule more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteUse {
    Create,
    Update,
    Patch,
    Apply,
}

impl WriteOptions {
    pub fn read(query: &Query, use_: WriteUse) -> Result<Self, ApiError> {
        let mut errors = ErrorList::new();
        let manager = query.text("fieldManager");
        match use_ {
            WriteUse::Apply if manager.is_empty() => {
                errors.push(Error::required(
                    &Path::new("fieldManager"),
                    "is required for apply patch",
                ));
            }
            WriteUse::Patch if query.get("force").is_some() => {
                errors.push(Error::forbidden(
                    &Path::new("force"),
                    "may not be specified for non-apply patch",
                ));
            }
            _ => {}
        }
        errors.extend(meta::field_manager_errors(manager, &Path::new("fieldManager")));
        let dry_run: Vec<String> = query.all("dryRun").map(ToOwned::to_owned).collect();
        errors.extend(meta::dry_run_errors(&dry_run, &Path::new("dryRun")));
        let validation = query.text("fieldValidation");
        errors.extend(meta::field_validation_errors(validation, &Path::new("fieldValidation")));
        let field_validation = match validation {
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            _ => FieldValidation::Warn,
        };
        if !errors.is_empty() {
            let kind = match use_ {
                WriteUse::Create => "CreateOptions",
                WriteUse::Update => "UpdateOptions",
                WriteUse::Patch | WriteUse::Apply => "PatchOptions",
            };
            return Err(ApiError::invalid_options(kind, &errors));
        }
        let dry_run = if dry_run.is_empty() { DryRun::No } else { DryRun::All };
        Ok(Self {
            dry_run,
            field_manager: manager.to_owned(),
            field_validation,
            asked_validation: validation.to_owned(),
        })
    }
}

/// Options of delete from the query: what a DELETE without a body says.
pub fn delete_options_from_query(query: &Query) -> Result<DeleteOptions, ApiError> {
    checked(DeleteOptions {
        grace_period_seconds: query.int("gracePeriodSeconds")?,
        orphan_dependents: query.get("orphanDependents").map(|_| query.flag("orphanDependents")),
        propagation_policy: query.get("propagationPolicy").map(ToOwned::to_owned),
        dry_run: query.all("dryRun").map(ToOwned::to_owned).collect(),
        ignore_store_read_error: query.flag("ignoreStoreReadErrorWithClusterBreakingPotential"),
        ..DeleteOptions::default()
    })
}

/// Options of delete from a decoded body of kind DeleteOptions.
pub fn delete_options_from_body(body: &Value) -> Result<DeleteOptions, ApiError> {
    checked(DeleteOptions::from_value(body))
}

fn checked(options: DeleteOptions) -> Result<DeleteOptions, ApiError> {
    let errors = meta::delete_options_errors(&options);
    if errors.is_empty() {
        Ok(options)
    } else {
        Err(ApiError::invalid_options("DeleteOptions", &errors))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(query: &str, use_: ListUse) -> String {
        match ListOptions::read(&Query::parse(Some(query)), use_) {
            Ok(options) => format!("{:?} {:?}", options.version_match, options.send_initial_events),
            Err(error) => error.message().to_owned(),
        }
    }

    #[test]
    fn a_watch_from_nowhere_begins_with_the_state() {
        assert_eq!(list("", ListUse::Watch), "NotOlderThan Some(true)");
        assert_eq!(list("resourceVersion=0", ListUse::Watch), "NotOlderThan Some(true)");
        assert_eq!(list("resourceVersion=5", ListUse::Watch), "Unset None");
        assert!(list("sendInitialEvents=true", ListUse::Watch).contains("requires setting resourceVersionMatch"));
        assert!(list("sendInitialEvents=true", ListUse::List).contains("forbidden for list"));
    }

    #[test]
    fn versions_are_numbers() {
        assert_eq!(parse_version("0").unwrap(), None);
        assert_eq!(parse_version("12").unwrap(), Some(Revision(12)));
        assert_eq!(
            parse_version("abc").unwrap_err().for_list().message(),
            "invalid resource version: resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \"abc\": invalid syntax"
        );
        assert!(parse_version("-1").is_err() && parse_version("99999999999999999999").is_err());
    }

    #[test]
    fn write_options_name_their_kind() {
        let read = |query: &str, use_| WriteOptions::read(&Query::parse(Some(query)), use_);
        assert_eq!(
            read("dryRun=Some", WriteUse::Update).unwrap_err().message(),
            "UpdateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"Some\"]: supported values: \"All\""
        );
        assert!(read("force=true", WriteUse::Patch).is_err());
        assert_eq!(read("dryRun=All", WriteUse::Create).unwrap().dry_run, DryRun::All);
    }
}

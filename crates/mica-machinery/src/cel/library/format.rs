//! Named formats: `format.dns1123Label().validate(x)`.

use std::sync::LazyLock;

use super::{EvalError, Implementation, Outcome, regex, time, url};
use crate::cel::value::Val;
use crate::codec::base64::{Alphabet, decode};
use crate::kind::NameUse;
use crate::names;

/// A format: its name, what is wrong with a text by it, and how long upstream takes its pattern to be.
#[derive(Debug)]
pub struct NamedFormat {
    pub name: &'static str,
    function: &'static str,
    check: fn(&str) -> Vec<String>,
    pub pattern_size: u64,
}

static FORMATS: &[NamedFormat] = &[
    NamedFormat {
        name: "DNS1123Label",
        function: "dns1123Label",
        check: |text| names::name_is_dns_label(text, NameUse::Name),
        pattern_size: 30,
    },
    NamedFormat {
        name: "DNS1123Subdomain",
        function: "dns1123Subdomain",
        check: |text| names::name_is_dns_subdomain(text, NameUse::Name),
        pattern_size: 60,
    },
    NamedFormat {
        name: "DNS1035Label",
        function: "dns1035Label",
        check: |text| names::name_is_dns1035_label(text, NameUse::Name),
        pattern_size: 30,
    },
    NamedFormat {
        name: "QualifiedName",
        function: "qualifiedName",
        check: names::qualified_name,
        pattern_size: 60,
    },
    NamedFormat {
        name: "DNS1123LabelPrefix",
        function: "dns1123LabelPrefix",
        check: |text| names::name_is_dns_label(text, NameUse::Prefix),
        pattern_size: 30,
    },
    NamedFormat {
        name: "DNS1123SubdomainPrefix",
        function: "dns1123SubdomainPrefix",
        check: |text| names::name_is_dns_subdomain(text, NameUse::Prefix),
        pattern_size: 60,
    },
    NamedFormat {
        name: "DNS1035LabelPrefix",
        function: "dns1035LabelPrefix",
        check: |text| names::name_is_dns1035_label(text, NameUse::Prefix),
        pattern_size: 30,
    },
    NamedFormat {
        name: "LabelValue",
        function: "labelValue",
        check: names::label_value,
        pattern_size: 40,
    },
    NamedFormat {
        name: "URI",
        function: "uri",
        check: |text| url::parse_request(text).err().into_iter().collect(),
        pattern_size: 1103,
    },
    NamedFormat {
        name: "uuid",
        function: "uuid",
        check: |text| unless(is_uuid(text), "does not match the UUID format"),
        pattern_size: 70,
    },
    NamedFormat {
        name: "byte",
        function: "byte",
        check: |text| unless(is_base64(text), "invalid base64"),
        pattern_size: 84,
    },
    NamedFormat {
        name: "date",
        function: "date",
        check: |text| unless(time::parse_date(text).is_ok(), "invalid date"),
        pattern_size: 71,
    },
    NamedFormat {
        name: "datetime",
        function: "datetime",
        check: |text| unless(is_datetime(text), "invalid datetime"),
        pattern_size: 71,
    },
];

pub fn find(name: &str) -> Option<Implementation> {
    Some(match name {
        "validate" => |_, args| match args {
            [Val::Format(format), Val::String(text)] => {
                let errors = (format.check)(text);
                let errors: Vec<_> = errors.into_iter().map(Val::string).collect();
                Ok(Val::optional((!errors.is_empty()).then(|| Val::list(errors))))
            }
            _ => Err(EvalError::no_overload()),
        },
        "format.named" => |_, args| match args {
            [Val::String(name)] => Ok(Val::optional(named(name).map(Val::Format))),
            _ => Err(EvalError::no_overload()),
        },
        "format.dns1123Label" => |_, _| constant("dns1123Label"),
        "format.dns1123Subdomain" => |_, _| constant("dns1123Subdomain"),
        "format.dns1035Label" => |_, _| constant("dns1035Label"),
        "format.qualifiedName" => |_, _| constant("qualifiedName"),
        "format.dns1123LabelPrefix" => |_, _| constant("dns1123LabelPrefix"),
        "format.dns1123SubdomainPrefix" => |_, _| constant("dns1123SubdomainPrefix"),
        "format.dns1035LabelPrefix" => |_, _| constant("dns1035LabelPrefix"),
        "format.labelValue" => |_, _| constant("labelValue"),
        "format.uri" => |_, _| constant("uri"),
        "format.uuid" => |_, _| constant("uuid"),
        "format.byte" => |_, _| constant("byte"),
        "format.date" => |_, _| constant("date"),
        "format.datetime" => |_, _| constant("datetime"),
        _ => return None,
    })
}

fn named(function: &str) -> Option<&'static NamedFormat> {
    FORMATS.iter().find(|format| format.function == function)
}

fn constant<'a>(function: &str) -> Outcome<'a> {
    named(function).map(Val::Format).ok_or_else(EvalError::no_overload)
}

fn unless(valid: bool, message: &str) -> Vec<String> {
    if valid { Vec::new() } else { vec![message.to_owned()] }
}

fn is_uuid(text: &str) -> bool {
    static UUID: LazyLock<Option<::regex::Regex>> =
        LazyLock::new(|| regex::compile("(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$").ok());
    UUID.as_ref().is_some_and(|uuid| uuid.is_match(text))
}

fn is_base64(text: &str) -> bool {
    !text.is_empty() && !text.contains(['\r', '\n']) && decode(text, Alphabet::Standard).is_ok()
}

fn is_datetime(text: &str) -> bool {
    static CLOCK: LazyLock<Option<::regex::Regex>> = LazyLock::new(|| {
        regex::compile("^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$").ok()
    });
    let lower = text.to_lowercase();
    let mut parts = lower.split('t');
    let (Some(date), Some(clock)) = (parts.next(), parts.next()) else {
        return false;
    };
    let Some(found) = CLOCK.as_ref().and_then(|regex| regex.captures(clock)) else {
        return false;
    };
    time::parse_date(date).is_ok() && &found[1] <= "23" && &found[2] <= "59" && &found[3] <= "59"
}

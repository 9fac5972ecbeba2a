//! Writing DER: as much of it as a certificate needs.
//!
//! Certificates for others' requests are put together here and not by rcgen, because a request's subject may hold several
//! values of a kind, as `O` does for a user of several groups, and rcgen's names hold one.

pub const INTEGER: u8 = 0x02;
pub const BIT_STRING: u8 = 0x03;
pub const OCTET_STRING: u8 = 0x04;
pub const OBJECT_ID: u8 = 0x06;
const BOOLEAN: u8 = 0x01;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
pub const SEQUENCE: u8 = 0x30;

/// A tag that means something only where it stands.
pub const fn context(number: u8) -> u8 {
    0x80 | number
}

/// The same around other values.
pub const fn explicit(number: u8) -> u8 {
    0xa0 | number
}

/// One value: its tag, its length, its content.
pub fn tlv(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    match u8::try_from(content.len()) {
        Ok(short) if short < 0x80 => out.push(short),
        _ => {
            let length = content.len().to_be_bytes();
            let length: Vec<u8> = length.into_iter().skip_while(|byte| *byte == 0).collect();
            out.push(0x80 | u8::try_from(length.len()).expect("a length has at most eight bytes"));
            out.extend(length);
        }
    }
    out.extend_from_slice(content);
    out
}

/// A value that holds others, in their order.
pub fn nest(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    tlv(tag, &parts.concat())
}

/// A whole number that is not negative, given in big-endian bytes.
pub fn integer(bytes: &[u8]) -> Vec<u8> {
    let mut content: Vec<u8> = bytes.iter().copied().skip_while(|byte| *byte == 0).collect();
    if content.first().is_none_or(|byte| *byte >= 0x80) {
        content.insert(0, 0);
    }
    tlv(INTEGER, &content)
}

/// An object id.
pub fn object_id(arcs: &[u64]) -> Vec<u8> {
    let (head, rest) = arcs.split_at(2);
    let mut content = Vec::new();
    for arc in std::iter::once(head[0] * 40 + head[1]).chain(rest.iter().copied()) {
        let groups = (64 - arc.leading_zeros()).div_ceil(7).max(1);
        for group in (0..groups).rev() {
            let bits = u8::try_from(arc >> (7 * group) & 0x7f).expect("seven bits");
            content.push(if group == 0 { bits } else { bits | 0x80 });
        }
    }
    tlv(OBJECT_ID, &content)
}

/// Bits of which some at the end do not count.
pub fn bit_string(unused: u8, bytes: &[u8]) -> Vec<u8> {
    nest(BIT_STRING, &[&[unused], bytes])
}

/// A time in the form that its year asks for.
pub fn time(at: jiff::Timestamp) -> Vec<u8> {
    let at = at.to_zoned(jiff::tz::TimeZone::UTC);
    if (1950..2050).contains(&at.year()) {
        tlv(UTC_TIME, at.strftime("%y%m%d%H%M%SZ").to_string().as_bytes())
    } else {
        tlv(GENERALIZED_TIME, at.strftime("%Y%m%d%H%M%SZ").to_string().as_bytes())
    }
}

/// An extension of a certificate.
pub fn extension(arcs: &[u64], critical: Critical, value: &[u8]) -> Vec<u8> {
    let flag = match critical {
        Critical::Yes => tlv(BOOLEAN, &[0xff]),
        Critical::No => Vec::new(),
    };
    nest(SEQUENCE, &[&object_id(arcs), &flag, &tlv(OCTET_STRING, value)])
}

/// Whether those who do not know an extension must refuse its certificate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Critical {
    Yes,
    No,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_as_the_standard_has_them() {
        assert_eq!(tlv(4, &[1; 3]), [4, 3, 1, 1, 1]);
        assert_eq!(tlv(4, &[0; 200])[..3], [4, 0x81, 200]);
        assert_eq!(tlv(4, &[0; 300])[..4], [4, 0x82, 1, 44]);
        assert_eq!(integer(&[0, 0, 0x80]), [2, 2, 0, 0x80]);
        assert_eq!(integer(&[]), [2, 1, 0]);
        assert_eq!(object_id(&[2, 5, 29, 15]), [6, 3, 0x55, 0x1d, 0x0f]);
        assert_eq!(
            object_id(&[1, 2, 840, 10045, 4, 3, 2]),
            [6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2]
        );
        let text = |seconds: i64| {
            let value = time(jiff::Timestamp::from_second(seconds).unwrap());
            (value[0], String::from_utf8(value[2..].to_vec()).unwrap())
        };
        assert_eq!(text(0), (UTC_TIME, "700101000000Z".to_owned()));
        assert_eq!(text(2_600_000_000), (GENERALIZED_TIME, "20520522141320Z".to_owned()));
    }
}

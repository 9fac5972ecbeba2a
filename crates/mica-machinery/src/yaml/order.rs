//! The order of keys in printed YAML: letters after other characters, numbers inside names by value.

use std::cmp::Ordering;

/// Sorts keys as upstream prints them.
///
/// Upstream's comparison is no total order for every odd input, so this is a merge sort of our own, which at worst
/// leaves such keys in some order; the standard library's sort may panic on them.
pub(super) fn sort<'a>(mut keys: Vec<&'a str>) -> Vec<&'a str> {
    let mut sorted: Vec<&'a str> = Vec::with_capacity(keys.len());
    let mut width = 1;
    while width < keys.len() {
        sorted.clear();
        for pair in keys.chunks(width * 2) {
            let (left, right) = pair.split_at(width.min(pair.len()));
            merge(left, right, &mut sorted);
        }
        std::mem::swap(&mut keys, &mut sorted);
        width *= 2;
    }
    keys
}

fn merge<'a>(mut left: &[&'a str], mut right: &[&'a str], out: &mut Vec<&'a str>) {
    while let ([a, left_rest @ ..], [b, right_rest @ ..]) = (left, right) {
        if compare(b, a) == Ordering::Less {
            out.push(b);
            right = right_rest;
        } else {
            out.push(a);
            left = left_rest;
        }
    }
    out.extend_from_slice(left);
    out.extend_from_slice(right);
}

fn compare(a: &str, b: &str) -> Ordering {
    // Most names differ in plain letters; only then are the characters worth collecting.
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let Some(at) = a.iter().zip(&b).position(|(x, y)| x != y) else {
        return a.len().cmp(&b.len());
    };
    match (a[at].is_alphabetic(), b[at].is_alphabetic()) {
        (true, true) => return a[at].cmp(&b[at]),
        (true, false) => return Ordering::Greater,
        (false, true) => return Ordering::Less,
        (false, false) => {}
    }
    // A zero inside a number counts; a leading one does not.
    let within_number = (a[at] == '0' || b[at] == '0')
        && a[..at]
            .iter()
            .rev()
            .take_while(|c| c.is_ascii_digit())
            .any(|c| *c != '0');
    let start = i64::from(within_number);
    let (a_number, a_end) = number(&a, at, start);
    let (b_number, b_end) = number(&b, at, start);
    a_number.cmp(&b_number).then(a_end.cmp(&b_end)).then(a[at].cmp(&b[at]))
}

/// The number that continues at `at`, and where it ends.
fn number(text: &[char], at: usize, start: i64) -> (i64, usize) {
    let digits = text[at..].iter().map_while(|c| c.to_digit(10));
    let mut end = at;
    let mut value = start;
    for digit in digits {
        value = value.wrapping_mul(10).wrapping_add(i64::from(digit));
        end += 1;
    }
    (value, end)
}

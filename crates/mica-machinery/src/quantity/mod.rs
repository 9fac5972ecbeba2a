//! Quantities: `100m`, `1.5Gi`, `2e3`. A fixed-point number and the family of suffixes it was written with.
//!
//! Upstream keeps a big decimal; here the mantissa is an `i128` of at most 38 digits, which holds every sum of real
//! quantities. A longer number keeps its leading 38 digits, rounded away from zero.
//! Surprises kept from upstream: a text already close to canonical prints as it was written (`+5`, `1.500`), and a
//! number beyond the suffix table prints without any suffix.

mod parse;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::fmt;

use compact_str::CompactString;

/// The decimal exponent of a nano, the smallest step there is.
pub const NANO: i32 = -9;
pub const MILLI: i32 = -3;

/// More digits than this in a mantissa could overflow when scales are aligned.
const MAX_DIGITS: u32 = 38;

/// The family of suffixes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// `12e6`
    DecimalExponent,
    /// `12Mi`
    BinarySi,
    /// `12M`
    DecimalSi,
}

/// Why a text is no quantity, in upstream's words.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ParseError {
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    #[error("unable to parse numeric part of quantity")]
    Numeric,
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// What upstream keeps a number in: it shows, for only one of the two can be asked for an integer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Held {
    Integer,
    Decimal,
}

/// `mantissa` × 10^`scale`.
#[derive(Clone, Debug)]
pub struct Quantity {
    mantissa: i128,
    scale: i64,
    held: Held,
    format: Format,
    /// The text it was read from, if that is what it prints as.
    text: Option<CompactString>,
}

impl Quantity {
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        parse::parse(text)
    }

    pub fn new(value: i64, format: Format) -> Self {
        Self::scaled(value.into(), 0, format)
    }

    pub fn milli(value: i64, format: Format) -> Self {
        Self::scaled(value.into(), MILLI.into(), format)
    }

    pub fn zero() -> Self {
        Self::new(0, Format::DecimalSi)
    }

    fn scaled(mantissa: i128, scale: i64, format: Format) -> Self {
        Self {
            mantissa,
            scale,
            held: Held::Integer,
            format,
            text: None,
        }
    }

    pub fn format(&self) -> Format {
        self.format
    }

    pub fn is_zero(&self) -> bool {
        self.mantissa == 0
    }

    /// -1, 0 or 1.
    pub fn signum(&self) -> i32 {
        self.mantissa.signum() as i32
    }

    /// The value rounded away from zero to an integer; saturates.
    pub fn value(&self) -> i64 {
        self.scaled_value(0)
    }

    /// A thousand times the value, rounded away from zero; saturates.
    pub fn milli_value(&self) -> i64 {
        self.scaled_value(MILLI)
    }

    /// The value in units of 10^`scale`, rounded away from zero; saturates.
    pub fn scaled_value(&self, scale: i32) -> i64 {
        let (value, _) = self.rounded_to(scale);
        value.clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }

    /// The value, if it is an integer that fits and was not written with parts of one: upstream reduces no `1000m`.
    pub fn as_i64(&self) -> Option<i64> {
        if self.held == Held::Decimal || self.scale < 0 {
            return None;
        }
        match self.rounded_to(0) {
            (value, Rounding::Exact) => i64::try_from(value).ok(),
            _ => None,
        }
    }

    /// Upstream rounds the mantissa before the power of ten, and holds decimals in nanos.
    pub fn as_f64(&self) -> f64 {
        match self.held {
            Held::Integer => self.mantissa as f64 * float(1, self.scale),
            Held::Decimal => float(self.mantissa, self.scale - i64::from(NANO)) * float(1, NANO.into()),
        }
    }

    /// The sum, in this quantity's format (a zero takes the other's); what does not fit 38 digits is rounded away from zero.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let format = if self.is_zero() { other.format } else { self.format };
        let held = if self.held == other.held {
            self.held
        } else {
            Held::Decimal
        };
        let sum = |mantissa, scale, held| Self {
            held,
            ..Self::scaled(mantissa, scale, format)
        };
        if self.is_zero() {
            return sum(other.mantissa, other.scale, held);
        }
        if other.is_zero() {
            return sum(self.mantissa, self.scale, held);
        }
        let (high, low) = if self.scale >= other.scale {
            (self, other)
        } else {
            (other, self)
        };
        let room = i64::from(MAX_DIGITS - digits(high.mantissa));
        // Raise the higher one as far as it fits, and lower the other by what is left.
        let raise = (high.scale - low.scale).min(room);
        let scale = high.scale - raise;
        let (lowered, _) = divide_away(low.mantissa, scale - low.scale);
        let raised = high.mantissa * power(raise);
        // Two numbers of 38 digits may add up to more than fits: then one digit of each goes first.
        let (mantissa, scale) = match raised.checked_add(lowered) {
            Some(sum) => fit(sum, scale),
            None => fit(divide_away(raised, 1).0 + divide_away(lowered, 1).0, scale + 1),
        };
        let small = [raised, mantissa].iter().all(|part| i64::try_from(*part).is_ok());
        sum(mantissa, scale, if small { held } else { Held::Decimal })
    }

    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        let format = if self.is_zero() { other.format } else { self.format };
        let mut result = self.plus(&other.negated());
        result.format = format;
        result
    }

    #[must_use]
    pub fn negated(&self) -> Self {
        Self {
            held: self.held,
            ..Self::scaled(-self.mantissa, self.scale, self.format)
        }
    }

    /// The value in units of 10^`scale` and whether something was lost.
    fn rounded_to(&self, scale: i32) -> (i128, Rounding) {
        let shift = self.scale - i64::from(scale);
        if shift < 0 {
            return divide_away(self.mantissa, -shift);
        }
        if self.mantissa == 0 {
            return (0, Rounding::Exact);
        }
        if shift > i64::from(MAX_DIGITS - digits(self.mantissa)) {
            return (if self.mantissa < 0 { i128::MIN } else { i128::MAX }, Rounding::Lost);
        }
        (self.mantissa * power(shift), Rounding::Exact)
    }

    /// Mantissa and exponent with all factors of ten in the exponent, then the exponent lowered to a multiple of three.
    fn canonical_decimal(&self) -> (String, i64) {
        let (mut mantissa, mut exponent) = (self.mantissa, self.scale);
        while mantissa % 10 == 0 {
            mantissa /= 10;
            exponent += 1;
        }
        let pad = exponent.rem_euclid(3);
        (format!("{mantissa}{}", &"00"[..pad as usize]), exponent - pad)
    }

    /// The value as a number and a power of 1024, if that loses nothing and is not shorter without.
    fn canonical_binary(&self) -> Option<(i128, usize)> {
        let (mut value, Rounding::Exact) = self.rounded_to(0) else {
            return None;
        };
        if (-1023..=1023).contains(&value) {
            return None;
        }
        let mut exponent = 0;
        while value % 1024 == 0 {
            value /= 1024;
            exponent += 1;
        }
        Some((value, exponent))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Rounding {
    Exact,
    Lost,
}

impl fmt::Display for Quantity {
    /// The canonical form: no fraction, the largest suffix that loses nothing.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
        const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
        if let Some(text) = &self.text {
            return f.write_str(text);
        }
        if self.is_zero() {
            return f.write_str("0");
        }
        if self.format == Format::BinarySi
            && let Some((value, exponent)) = self.canonical_binary()
        {
            return write!(f, "{value}{}", BINARY.get(exponent).copied().unwrap_or_default());
        }
        let (number, exponent) = self.canonical_decimal();
        if self.format == Format::DecimalExponent {
            return if exponent == 0 {
                f.write_str(&number)
            } else {
                write!(f, "{number}e{exponent}")
            };
        }
        let suffix = usize::try_from((exponent + 9) / 3).ok().and_then(|at| DECIMAL.get(at));
        write!(f, "{number}{}", suffix.copied().unwrap_or_default())
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    /// By value: `1000m` equals `1`.
    fn cmp(&self, other: &Self) -> Ordering {
        let signs = self.mantissa.signum().cmp(&other.mantissa.signum());
        if signs != Ordering::Equal || self.is_zero() {
            return signs;
        }
        // The place of the leading digit decides, or both fit one scale.
        let place = |q: &Self| i64::from(digits(q.mantissa)) + q.scale;
        let magnitude = place(self).cmp(&place(other)).then_with(|| {
            let scale = self.scale.min(other.scale);
            let aligned = |q: &Self| q.mantissa.unsigned_abs() * power(q.scale - scale).unsigned_abs();
            aligned(self).cmp(&aligned(other))
        });
        if self.mantissa < 0 {
            magnitude.reverse()
        } else {
            magnitude
        }
    }
}

/// The nearest float to `mantissa` × 10^`scale`.
fn float(mantissa: i128, scale: i64) -> f64 {
    format!("{mantissa}e{scale}").parse().unwrap_or_default()
}

fn digits(value: i128) -> u32 {
    value.unsigned_abs().checked_ilog10().map_or(1, |log| log + 1)
}

/// 10^`exponent`, which the caller has shown to fit.
fn power(exponent: i64) -> i128 {
    10i128.pow(u32::try_from(exponent).expect("a checked, small exponent"))
}

/// `value` / 10^`places`, away from zero.
fn divide_away(value: i128, places: i64) -> (i128, Rounding) {
    if value == 0 || places == 0 {
        return (value, Rounding::Exact);
    }
    if places > i64::from(MAX_DIGITS) {
        return (value.signum(), Rounding::Lost);
    }
    let divisor = power(places);
    let (quotient, rest) = (value / divisor, value % divisor);
    if rest == 0 {
        (quotient, Rounding::Exact)
    } else {
        (quotient + value.signum(), Rounding::Lost)
    }
}

/// The same number with at most 38 digits.
fn fit(mantissa: i128, scale: i64) -> (i128, i64) {
    let extra = digits(mantissa).saturating_sub(MAX_DIGITS);
    let (mantissa, _) = divide_away(mantissa, extra.into());
    (mantissa, scale + i64::from(extra))
}

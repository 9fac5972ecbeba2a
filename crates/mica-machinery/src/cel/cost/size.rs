//! Ranges of sizes and of costs, with arithmetic that stops at the largest number instead of overflowing.

/// How large a value is: characters, bytes, elements or entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    pub min: u64,
    pub max: u64,
}

/// What something costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Estimate {
    pub min: u64,
    pub max: u64,
}

impl Size {
    pub const UNKNOWN: Self = Self { min: 0, max: u64::MAX };

    pub fn fixed(size: u64) -> Self {
        Self { min: size, max: size }
    }

    pub fn plus(self, other: Self) -> Self {
        Self {
            min: self.min.saturating_add(other.min),
            max: self.max.saturating_add(other.max),
        }
    }

    pub fn times_size(self, other: Self) -> Self {
        Self {
            min: self.min.saturating_mul(other.min),
            max: self.max.saturating_mul(other.max),
        }
    }

    pub fn times(self, cost: Estimate) -> Estimate {
        Estimate {
            min: self.min.saturating_mul(cost.min),
            max: self.max.saturating_mul(cost.max),
        }
    }

    pub fn times_factor(self, factor: f64) -> Estimate {
        Estimate {
            min: scale(self.min, factor),
            max: scale(self.max, factor),
        }
    }

    pub fn union(self, other: Self) -> Self {
        Self {
            min: self.min.min(other.min),
            max: self.max.max(other.max),
        }
    }
}

impl Estimate {
    pub fn fixed(cost: u64) -> Self {
        Self { min: cost, max: cost }
    }

    pub fn plus(self, other: Self) -> Self {
        Self {
            min: self.min.saturating_add(other.min),
            max: self.max.saturating_add(other.max),
        }
    }

    pub fn times(self, other: Self) -> Self {
        Self {
            min: self.min.saturating_mul(other.min),
            max: self.max.saturating_mul(other.max),
        }
    }

    pub fn times_factor(self, factor: f64) -> Self {
        Self {
            min: scale(self.min, factor),
            max: scale(self.max, factor),
        }
    }

    pub fn union(self, other: Self) -> Self {
        Self {
            min: self.min.min(other.min),
            max: self.max.max(other.max),
        }
    }
}

/// `value` times `factor`, rounded up. Converting to u64 stops at the largest number.
fn scale(value: u64, factor: f64) -> u64 {
    (value as f64 * factor).ceil() as u64
}

//! Floating-point functions that `std` has and `core` lacks, from `libm`.
//!
//! The names are those of `std`, so that code compiles unchanged with and without it.

pub(crate) trait Float {
    fn ceil(self) -> Self;
    fn exp(self) -> Self;
    fn exp2(self) -> Self;
    fn exp_m1(self) -> Self;
    fn floor(self) -> Self;
    fn ln(self) -> Self;
    fn ln_1p(self) -> Self;
    fn log2(self) -> Self;
    fn powf(self, exponent: Self) -> Self;
    fn powi(self, exponent: i32) -> Self;
    fn round(self) -> Self;
}

impl Float for f64 {
    fn ceil(self) -> Self {
        libm::ceil(self)
    }

    fn exp(self) -> Self {
        libm::exp(self)
    }

    fn exp2(self) -> Self {
        libm::exp2(self)
    }

    fn exp_m1(self) -> Self {
        libm::expm1(self)
    }

    fn floor(self) -> Self {
        libm::floor(self)
    }

    fn ln(self) -> Self {
        libm::log(self)
    }

    fn ln_1p(self) -> Self {
        libm::log1p(self)
    }

    fn log2(self) -> Self {
        libm::log2(self)
    }

    fn powf(self, exponent: Self) -> Self {
        libm::pow(self, exponent)
    }

    fn powi(self, exponent: i32) -> Self {
        libm::pow(self, exponent.into())
    }

    fn round(self) -> Self {
        libm::round(self)
    }
}

//! CRC-32 as polynomials, to combine the checksums of two parts.

/// Polynomial of CRC-32, reflected.
const POLYNOMIAL: u32 = 0xedb8_8320;
/// Polynomial 1, reflected.
pub(super) const ONE: u32 = 1 << 31;

/// Multiplies a reflected polynomial by x^8, modulo the polynomial of the CRC. Feeds a byte that
/// was XORed into a state.
pub(super) fn step(value: u32) -> u32 {
    TABLE[(value & 0xff) as usize] ^ (value >> 8)
}

const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut at = 0;
    while at < table.len() {
        let mut value = at as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { (value >> 1) ^ POLYNOMIAL } else { value >> 1 };
            bit += 1;
        }
        table[at] = value;
        at += 1;
    }
    table
};

/// Multiplies two reflected polynomials modulo that of the CRC.
pub(super) fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    let mut bit = ONE;
    while bit > 0 {
        if a & bit > 0 {
            product ^= b;
        }
        bit >>= 1;
        b = if b & 1 == 1 { (b >> 1) ^ POLYNOMIAL } else { b >> 1 };
    }
    product
}

//! A crash of an enumeration as text, to repeat it.

use std::{fmt, str::FromStr};

use sievedb_doubles::Loss;

/// A power cut: its position and its losses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// Number of disk operations before the cut.
    pub at: usize,
    /// Lost unsynced operations.
    pub loss: Loss,
}

/// A workload, a power cut, and optionally a second one during the recovery from the first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    /// The name of the workload.
    pub workload: String,
    /// The first power cut.
    pub cut: Cut,
    /// The second power cut, in operations since the first.
    pub second: Option<Cut>,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.loss {
            Loss::Nothing => write!(f, "{}:nothing", self.at),
            Loss::Everything => write!(f, "{}:everything", self.at),
            Loss::Alone(number) => write!(f, "{}:alone:{number}", self.at),
            Loss::Random { seed, torn: false } => write!(f, "{}:random:{seed}", self.at),
            Loss::Random { seed, torn: true } => write!(f, "{}:torn:{seed}", self.at),
        }
    }
}

impl FromStr for Cut {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(':');
        let wrong = || format!("{text} is no power cut");
        let number =
            |part: Option<&str>| part.and_then(|part| part.parse::<u64>().ok()).ok_or_else(wrong);
        let at = number(parts.next())?;
        let loss = match parts.next() {
            Some("nothing") => Loss::Nothing,
            Some("everything") => Loss::Everything,
            Some("alone") => {
                Loss::Alone(usize::try_from(number(parts.next())?).map_err(|_| wrong())?)
            }
            Some("random") => Loss::Random { seed: number(parts.next())?, torn: false },
            Some("torn") => Loss::Random { seed: number(parts.next())?, torn: true },
            _ => return Err(wrong()),
        };
        Ok(Self { at: usize::try_from(at).map_err(|_| wrong())?, loss })
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.workload, self.cut)?;
        match &self.second {
            Some(second) => write!(f, "@{second}"),
            None => Ok(()),
        }
    }
}

impl FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split('@');
        let workload = parts.next().unwrap_or_default().to_owned();
        let cut = parts.next().ok_or("a case is workload@cut or workload@cut@cut")?.parse()?;
        let second = parts.next().map(str::parse).transpose()?;
        Ok(Self { workload, cut, second })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_survives_text_round_trip() {
        let losses = [
            Loss::Nothing,
            Loss::Everything,
            Loss::Alone(3),
            Loss::Random { seed: u64::MAX, torn: false },
            Loss::Random { seed: 5, torn: true },
        ];
        for loss in losses {
            let cut = Cut { at: 17, loss };
            for second in [None, Some(Cut { at: 0, loss })] {
                let case = Case { workload: "flush by size".to_owned(), cut, second };
                assert_eq!(case.to_string().parse(), Ok(case));
            }
        }
        assert!("flush".parse::<Case>().is_err());
        assert!("flush@1:some".parse::<Case>().is_err());
    }
}

//! The plot of space over the bound against rate.

use std::error::Error;

use plotters::{
    chart::{ChartBuilder, SeriesLabelPosition},
    coord::combinators::IntoLogRange as _,
    drawing::IntoDrawingArea as _,
    element::{Circle, PathElement},
    prelude::SVGBackend,
    series::LineSeries,
    style::{Color as _, RGBColor, WHITE},
};

use crate::{
    contestants::{FAMILIES, Origin},
    point::Point,
    text,
};

/// Default path of the plot. The published one is in `docs`.
pub(crate) const PATH: &str = "target/filters-space.svg";

const SIZE: (u32, u32) = (960, 600);

/// Points above are not drawn, to leave space for those near the bound and for the legend.
const OVER_MAX: f64 = 2.0;

/// Colours that colour-blind readers can distinguish: Okabe and Ito, "Color Universal Design",
/// 2008; the last ones are greys and browns.
const COLOURS: [RGBColor; 10] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(120, 94, 60),
    RGBColor(130, 130, 130),
    RGBColor(70, 70, 140),
    RGBColor(20, 20, 20),
];

/// Draws all structures: ours with thick lines.
pub(crate) fn svg(points: &[Point]) -> Result<String, Box<dyn Error>> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .margin(16)
            .caption("Bits per key over log2(1 / rate)", ("sans-serif", 20))
            .x_label_area_size(44)
            .y_label_area_size(60)
            // From the highest rate to the lowest.
            .build_cartesian_2d((0.15..0.000_005).log_scale(), 0.0..OVER_MAX)?;
        chart
            .configure_mesh()
            .light_line_style(RGBColor(238, 238, 238))
            .x_desc("false-positive rate")
            .y_desc("over the bound")
            .x_label_formatter(&|rate| text::per_cent(*rate))
            .y_label_formatter(&|over| format!("{:.0} %", over * 100.0))
            .draw()?;
        for (family, colour) in FAMILIES.iter().zip(COLOURS.iter().cycle()) {
            let drawn: Vec<(f64, f64)> = points
                .iter()
                .filter(|point| point.structure == family.name)
                .map(|point| (point.rate(), point.space.over_bound))
                .filter(|&(rate, over)| rate > 0.0 && over <= OVER_MAX)
                .collect();
            if drawn.is_empty() {
                continue;
            }
            let width = if family.origin == Origin::Ours { 4 } else { 2 };
            let style = colour.stroke_width(width);
            chart
                .draw_series(LineSeries::new(drawn.iter().copied(), style))?
                .label(family.name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 22, y)], style));
            chart.draw_series(drawn.iter().map(|&point| Circle::new(point, 3, colour.filled())))?;
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.85))
            .border_style(RGBColor(200, 200, 200))
            .draw()?;
        area.present()?;
    }
    svg.push('\n');
    Ok(svg)
}

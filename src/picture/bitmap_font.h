// A font of 5 x 7 dots, and one row for tails, for printable ASCII, so that a PNG can say something
// without a font library.
#pragma once

#include <cstdint>

namespace treadle::picture {

inline constexpr int glyph_columns = 5;
inline constexpr int glyph_rows = 8;
inline constexpr int glyph_height = 7;  // above the line

// Whether a dot of the letter is set. Letters that the font does not have are question marks.
bool glyph_dot(char letter, int column, int row);

}  // namespace treadle::picture

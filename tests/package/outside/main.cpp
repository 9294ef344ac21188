// Uses Treadle from outside: headers are found, symbols are shown, errors cross the border.
#include <treadle/error.h>
#include <treadle/view.h>

#include <iostream>
#include <vector>

int main() {
  std::vector<float> data = {1, 2, 3, 4, 5, 6};
  treadle::View view(data.data(), {2, 3});
  try {
    view.at<float>({2, 0});
  } catch (const treadle::Error& error) {
    std::cout << error.what() << '\n';
    return view.at<float>({1, 2}) == 6 ? 0 : 1;
  }
  std::cerr << "reading outside of a view did not throw\n";
  return 1;
}

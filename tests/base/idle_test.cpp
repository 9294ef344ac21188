// What waits between calls: nobody else has it, and it is as it was left.
#include "base/idle.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "base/fixed_list.h"

namespace treadle::base {
namespace {

TEST(Idle, GivesEachToOneAtATime) {
  Idle<std::vector<int>> idle;
  {
    const auto first = idle.take();
    const auto second = idle.take();
    EXPECT_NE(&*first, &*second);
    first->assign(100, 1);
    second->assign(100, 2);
  }
  const std::vector<int>* known = nullptr;
  {
    const auto again = idle.take();
    EXPECT_EQ(again->size(), 100u);
    known = &*again;
  }
  EXPECT_EQ(&*idle.take(), known);
}

TEST(Idle, MakesWhatIsMissing) {
  Idle<std::string> idle;
  const auto made = idle.take([] { return std::make_unique<std::string>("made"); });
  EXPECT_EQ(*made, "made");
  EXPECT_THROW(
      (void)idle.take([]() -> std::unique_ptr<std::string> { throw std::runtime_error("not"); }),
      std::runtime_error);
  EXPECT_EQ(*idle.take(), "");
}

// Counts those that live.
struct Counted {
  explicit Counted(int& count, int number = 0) : living(count), value(number) { ++living; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  ~Counted() { --living; }
  int& living;
  int value;
};

TEST(FixedList, EndsWhatItHolds) {
  int living = 0;
  {
    FixedList<Counted> list;
    list.start(3);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(list.emplace(living, i).value, i);
    EXPECT_EQ(living, 3);
    const Counted* first = &list[0];
    list.start(2);
    EXPECT_EQ(living, 0);
    EXPECT_EQ(&list.emplace(living), first);
    list.start(100);
    EXPECT_EQ(living, 0);
    for (int i = 0; i < 100; ++i) list.emplace(living, i);
    EXPECT_EQ(list[99].value, 99);
    EXPECT_EQ(list.size(), 100u);
  }
  EXPECT_EQ(living, 0);
}

}  // namespace
}  // namespace treadle::base
